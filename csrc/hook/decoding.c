/* Read the instructions of a code object, and the definitions of modules written in C.
 *
 * In:  the bytes, names and constants of a code object; for each opcode its row (see stator/code/decode.py).
 * Out: objects of the class Instruction, their slots filled, and the instruction that each byte offset belongs to.
 */
#include "functions.h"
#include <structmember.h>

/* As class Operand of stator/code/opcodes.py numbers them; ROW_EXTENDS is the row of EXTENDED_ARG. */
enum { ROW_NONE = 0, ROW_NUMBER = 1, ROW_CONST = 2, ROW_NAME = 3, ROW_NAME_FLAG1 = 4, ROW_SLOT = 6, ROW_FORWARD = 12,
       ROW_BACKWARD = 13, ROW_EXTENDS = -1 };
enum { OPNAME, ARG, ARGVAL, INDEX, OFFSET, LINE, POSITIONS, TARGET, HANDLER, FLAG, WRITTEN, SLOTS };
static const char *const slot_names[SLOTS] = {"opname", "arg", "argval", "index", "offset", "line", "positions",
                                              "target", "handler", "flag", "written"};

static int
slot_offsets(PyTypeObject *type, Py_ssize_t *offsets)
{
    for (int i = 0; i < SLOTS; i++) {
        PyObject *member = PyObject_GetAttrString((PyObject *)type, slot_names[i]);
        if (member == NULL) {
            return -1;
        }
        int known = Py_IS_TYPE(member, &PyMemberDescr_Type);
        offsets[i] = known ? ((PyMemberDescrObject *)member)->d_member->offset : 0;
        Py_DECREF(member);
        if (!known) {
            PyErr_Format(PyExc_TypeError, "%s is no slot", slot_names[i]);
            return -1;
        }
    }
    return 0;
}

/* Where a code unit stands in the source: the location table, read entry by entry (Objects/locations.md of CPython). */
typedef struct {
    const unsigned char *at, *end;
    Py_ssize_t units;  /* that the entry still covers */
    int line;
    PyObject *place;  /* (line, end line, column, end column), or None: nowhere */
} Locations;

static int
read_varint(Locations *table)
{
    int value = 0, shift = 0;
    while (table->at < table->end) {
        unsigned char byte = *table->at++;
        value |= (byte & 63) << shift;
        shift += 6;
        if (!(byte & 64)) {
            break;
        }
    }
    return value;
}

static int
read_signed(Locations *table)
{
    int value = read_varint(table);
    return value & 1 ? -(value >> 1) : value >> 1;
}

/* Take one code unit; -1 on an error. */
static int
next_unit(Locations *table)
{
    if (table->units > 0) {
        table->units--;
        return 0;
    }
    if (table->at >= table->end) {
        Py_XSETREF(table->place, Py_NewRef(Py_None));
        return 0;
    }
    unsigned char head = *table->at++;
    int kind = head >> 3 & 15, lines = 0, column = -1, end_column = -1;
    table->units = head & 7;
    if (kind == 15) {
        Py_XSETREF(table->place, Py_NewRef(Py_None));
        return 0;
    }
    if (kind == 14) {
        table->line += read_signed(table);
        lines = read_varint(table);
        column = read_varint(table) - 1;
        end_column = read_varint(table) - 1;
    }
    else if (kind == 13) {
        table->line += read_signed(table);
    }
    else if (kind >= 10) {
        table->line += kind - 10;
        column = table->at < table->end ? *table->at++ : 0;
        end_column = table->at < table->end ? *table->at++ : 0;
    }
    else {
        unsigned char byte = table->at < table->end ? *table->at++ : 0;
        column = kind << 3 | byte >> 4;
        end_column = column + (byte & 15);
    }
    PyObject *columns[2] = {column < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(column),
                            end_column < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(end_column)};
    PyObject *place = Py_BuildValue("(iiNN)", table->line, table->line + lines, columns[0], columns[1]);
    Py_XSETREF(table->place, place);
    if (place == NULL) {
        return -1;
    }
    PyObject_GC_UnTrack(place);  /* numbers alone: the collector need not visit it */
    return 0;
}

static PyObject *
item_of(PyObject *tuple, Py_ssize_t place)
{
    return place < PyTuple_GET_SIZE(tuple) ? Py_NewRef(PyTuple_GET_ITEM(tuple, place)) : NULL;
}

/* The value and the flag of an operand; NULL without an error: out of range. */
static PyObject *
meaning(PyObject *code, PyObject *names, PyObject *constants, PyObject *meanings, long operand, long arg, PyObject **flag)
{
    switch (operand) {
    case ROW_NONE:
    case ROW_FORWARD:
    case ROW_BACKWARD:
        return Py_NewRef(Py_None);
    case ROW_NUMBER:
    case ROW_SLOT:
        return PyLong_FromLong(arg);
    case ROW_CONST:
        return item_of(constants, arg);
    case ROW_NAME:
        return item_of(names, arg);
    case ROW_NAME_FLAG1:
        *flag = arg & 1 ? Py_True : Py_False;
        return item_of(names, arg >> 1);
    }
    PyObject *function = item_of(meanings, operand);
    PyObject *pair = function == NULL ? NULL : PyObject_CallFunction(function, "lO", arg, code);
    Py_XDECREF(function);
    if (pair == NULL) {
        if (PyErr_ExceptionMatches(PyExc_IndexError)) {
            PyErr_Clear();
        }
        return NULL;
    }
    PyObject *found = Py_NewRef(PyTuple_GET_ITEM(pair, 0));
    *flag = PyTuple_GET_ITEM(pair, 1) == Py_True ? Py_True : Py_False;
    Py_DECREF(pair);
    return found;
}

/* Turn the targets of jumps from byte offsets into indexes; each must be the first unit of an instruction. */
static int
resolve_targets(PyObject *instructions, PyObject *index_of_offset, const Py_ssize_t *offsets, PyObject *qualname,
                PyObject *malformed)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(instructions); i++) {
        char *made = (char *)PyList_GET_ITEM(instructions, i);
        PyObject **target = (PyObject **)(made + offsets[TARGET]), **argval = (PyObject **)(made + offsets[ARGVAL]);
        if (*target == Py_None) {
            continue;
        }
        PyObject *index = PyDict_GetItemWithError(index_of_offset, *target);
        const char *why = NULL;
        if (index == NULL || PyLong_AsSsize_t(index) == PyList_GET_SIZE(instructions)) {
            why = "leaves the code";
        }
        else {
            PyObject *before = PyLong_FromSsize_t(PyLong_AsSsize_t(*target) - 2);
            if (before == NULL) {
                return -1;
            }
            PyObject *earlier = PyDict_GetItemWithError(index_of_offset, before);
            Py_DECREF(before);
            if (earlier != NULL && PyLong_AsSsize_t(earlier) == PyLong_AsSsize_t(index)) {
                why = "lands inside an instruction";
            }
        }
        if (why != NULL) {
            PyErr_Format(malformed, "%U of %U %s", *(PyObject **)(made + offsets[OPNAME]), qualname, why);
            return -1;
        }
        Py_SETREF(*target, Py_NewRef(index));
        Py_SETREF(*argval, Py_NewRef(index));
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* decode(code, bytes, rows, meanings, Instruction, MalformedCode, subscript) */
PyObject *
hook_decode(PyObject *module, PyObject *args)
{
    PyCodeObject *code;
    PyObject *data, *rows, *meanings, *malformed;
    PyTypeObject *type;
    long subscript;
    if (!PyArg_ParseTuple(args, "O!SO!O!O!Ol:decode", &PyCode_Type, &code, &data, &PyTuple_Type, &rows, &PyTuple_Type, &meanings, &PyType_Type, &type, &malformed, &subscript)) {
        return NULL;
    }
    Py_ssize_t offsets[SLOTS];
    if (slot_offsets(type, offsets) < 0) {
        return NULL;
    }
    const unsigned char *bytes = (const unsigned char *)PyBytes_AS_STRING(data);
    Py_ssize_t size = PyBytes_GET_SIZE(data), index = 0, offset = 0, first = 0;
    long extended = 0;
    const unsigned char *table = (const unsigned char *)PyBytes_AS_STRING(code->co_linetable);
    Locations locations = {table, table + PyBytes_GET_SIZE(code->co_linetable), 0, code->co_firstlineno, NULL};
    PyObject *instructions = PyList_New(0), *index_of_offset = PyDict_New();
    if (instructions == NULL || index_of_offset == NULL) {
        goto failed;
    }
    while (offset < size) {
        PyObject *row = bytes[offset] < PyTuple_GET_SIZE(rows) ? PyTuple_GET_ITEM(rows, bytes[offset]) : Py_None;
        if (row == Py_None || offset + 1 >= size) {
            PyErr_Format(malformed, "no opcode %d at offset %zd of %U", bytes[offset], offset, code->co_qualname);
            goto failed;
        }
        PyObject *written = PyTuple_GET_ITEM(row, 0), *opname = PyTuple_GET_ITEM(row, 1), *flag = Py_False;
        long operand = PyLong_AsLong(PyTuple_GET_ITEM(row, 2)), units = PyLong_AsLong(PyTuple_GET_ITEM(row, 3));
        long arg = extended << 8 | bytes[offset + 1];
        if (next_unit(&locations) < 0) {
            goto failed;
        }
        if (operand == ROW_EXTENDS) {
            extended = arg;
            offset += 2;
            continue;
        }
        extended = 0;
        Py_ssize_t after = offset + units;
        PyObject *value = meaning((PyObject *)code, code->co_names, code->co_consts, meanings, operand, arg, &flag);
        if (value == NULL) {
            if (!PyErr_Occurred()) {
                PyErr_Format(malformed, "%U %ld of %U is out of range", opname, arg, code->co_qualname);
            }
            goto failed;
        }
        if (operand == 9 && arg == subscript && PyUnicode_CompareWithASCIIString(written, "BINARY_OP") == 0) {
            opname = PyTuple_GET_ITEM(meanings, PyTuple_GET_SIZE(meanings) - 1);  /* BINARY_SUBSCR, an interned name */
        }
        char *made = (char *)type->tp_alloc(type, 0);
        if (made == NULL || PyList_Append(instructions, (PyObject *)made) < 0) {
            Py_DECREF(value);
            Py_XDECREF((PyObject *)made);
            goto failed;
        }
        Py_DECREF((PyObject *)made);  /* the list keeps it */
        PyObject *place = locations.place;
#define SLOT(name) (*(PyObject **)(made + offsets[name]))
        SLOT(OPNAME) = Py_NewRef(opname);
        SLOT(WRITTEN) = Py_NewRef(written);
        SLOT(ARG) = operand == ROW_NONE ? Py_NewRef(Py_None) : PyLong_FromLong(arg);
        SLOT(ARGVAL) = value;
        SLOT(FLAG) = Py_NewRef(flag);
        SLOT(INDEX) = PyLong_FromSsize_t(index);
        SLOT(OFFSET) = PyLong_FromSsize_t(offset);
        SLOT(TARGET) = operand == ROW_FORWARD ? PyLong_FromSsize_t(after + 2 * arg)
            : operand == ROW_BACKWARD ? PyLong_FromSsize_t(after - 2 * arg) : Py_NewRef(Py_None);
        SLOT(HANDLER) = Py_NewRef(Py_None);
        SLOT(LINE) = Py_NewRef(place == Py_None ? Py_None : PyTuple_GET_ITEM(place, 0));
        SLOT(POSITIONS) = Py_NewRef(place);
        if (SLOT(ARG) == NULL || SLOT(INDEX) == NULL || SLOT(OFFSET) == NULL || SLOT(TARGET) == NULL) {
            goto failed;
        }
        for (; first < after; first += 2) {
            PyObject *unit = PyLong_FromSsize_t(first);
            int failed = unit == NULL || PyDict_SetItem(index_of_offset, unit, SLOT(INDEX)) < 0;
            Py_XDECREF(unit);
            if (failed) {
                goto failed;
            }
        }
#undef SLOT
        /* Neither constants nor names of code lead back to its instructions: no cycle to find. */
        PyObject_GC_UnTrack(made);
        for (offset += 2; offset < after; offset += 2) {
            if (next_unit(&locations) < 0) {
                goto failed;
            }
        }
        index++;
    }
    PyObject *end = PyLong_FromSsize_t(offset), *count = PyLong_FromSsize_t(index);
    int failed = end == NULL || count == NULL || PyDict_SetItem(index_of_offset, end, count) < 0;
    Py_XDECREF(end);
    Py_XDECREF(count);
    if (failed || resolve_targets(instructions, index_of_offset, offsets, code->co_qualname, malformed) < 0) {
        goto failed;
    }
    Py_XDECREF(locations.place);
    return Py_BuildValue("(NN)", instructions, index_of_offset);
failed:
    Py_XDECREF(locations.place);
    Py_XDECREF(instructions);
    Py_XDECREF(index_of_offset);
    return NULL;
}

/* with_handlers(instructions, handlers): a list of (handler, instruction). The pairs are in no cycle, either. */
PyObject *
hook_with_handlers(PyObject *module, PyObject *args)
{
    PyObject *instructions, *handlers, *opname = NULL, *made = NULL;
    if (!PyArg_ParseTuple(args, "O!O!:with_handlers", &PyList_Type, &instructions, &PyDict_Type, &handlers)) {
        return NULL;
    }
    PyObject *name = PyUnicode_InternFromString("opname");
    if (name == NULL || (made = PyList_New(PyList_GET_SIZE(instructions))) == NULL) {
        Py_XDECREF(name);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(made); i++) {
        PyObject *instruction = PyList_GET_ITEM(instructions, i);
        Py_XSETREF(opname, PyObject_GetAttr(instruction, name));
        PyObject *handler = opname == NULL ? NULL : PyDict_GetItemWithError(handlers, opname);
        PyObject *pair = handler == NULL ? NULL : PyTuple_Pack(2, handler, instruction);
        if (pair == NULL) {
            if (!PyErr_Occurred()) {
                PyErr_SetObject(PyExc_KeyError, opname);
            }
            Py_CLEAR(made);
            break;
        }
        PyObject_GC_UnTrack(pair);
        PyList_SET_ITEM(made, i, pair);
    }
    Py_XDECREF(opname);
    Py_DECREF(name);
    return made;
}

/* definitions(modules): the first value of this dict with each definition (PyModuleDef), by its address. Others are
   only read: counting references would copy the memory of a forked process. */
PyObject *
hook_definitions(PyObject *module, PyObject *modules)
{
    PyObject *found = PyDict_New();
    if (found == NULL || !PyDict_Check(modules)) {
        Py_XDECREF(found);
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "definitions() takes a dict of modules");
    }
    PyObject *each;
    for (Py_ssize_t place = 0; PyDict_Next(modules, &place, NULL, &each);) {
        void *definition = Py_IS_TYPE(each, &PyModule_Type) ? PyModule_GetDef(each) : NULL;
        if (definition == NULL) {
            continue;
        }
        PyObject *address = PyLong_FromVoidPtr(definition);
        PyObject *kept = address == NULL ? NULL : PyDict_SetDefault(found, address, each);
        Py_XDECREF(address);
        if (kept == NULL) {
            Py_DECREF(found);
            return NULL;
        }
    }
    return found;
}
