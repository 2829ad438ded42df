"""Classes: attributes, methods, bodies with code, instances from outside and made inside."""


from curriculum import call, case, ramp


class Account:
    interest = 2
    opened = []

    def __init__(self, balance=0):
        self.balance = balance
        self.opened.append(balance)

    def deposit(self, amount):
        self.balance = self.balance + amount
        return self

    def __repr__(self):
        return f"Account({self.balance!r})"


class Table:
    rows = [i * i for i in range(4)]
    if len(rows) > 3:
        size = "big"
    else:
        size = "small"
    for _i in range(2):
        last = _i
    names = {}
    names["a"] = rows[1]

    def helper(n):
        return n + 1

    computed = helper(5)


shared = Account(100)


@case(lambda: call(Account(5), ramp(2)), lambda: call(Account(-1), ramp(2)))
def instance_argument(account, x):
    account.deposit(3).deposit(4)
    return x + account.balance


@case(lambda: call(Account(ramp(2))), lambda: call(Account(ramp(3))))
def tensor_attribute(account):
    account.deposit(1)
    account.seen = account.balance.shape
    return account.balance * 2


@case()
def made_inside(x):
    account = Account(x)
    account.deposit(x)
    return account, account.balance, len(Account.opened)


@case()
def global_instance(x):
    shared.deposit(1)
    return x * shared.balance


@case()
def class_attributes(x):
    Account.interest = Account.interest + 1
    one, two = Account(1), Account(2)
    one.interest = 50
    return x + one.interest + two.interest, vars(one), Account.opened is one.opened


@case()
def class_body_with_code(x):
    return Table.rows, Table.size, Table.last, Table.names, Table.computed, Table.helper(1), x + Table._i


@case()
def class_made_inside(x):
    class Local:
        """Doc."""

        kind = "local"
        scale = x.dim() + 1

        def apply(self, v):
            return v * self.scale

    return Local().apply(x), Local.__name__, Local.__qualname__, Local.__doc__, Local.kind, Local.__mro__[1] is object


@case()
def class_is_returned(x):
    class Result:
        value = x + 1

        def get(self):
            return self.value

    return Result, Result().get()


@case(lambda: call(Account(1), ramp(2)))
def missing_attribute(account, x):
    y = x + 1
    return y + account.nothing


@case()
def missing_class_attribute(x):
    y = x + 1
    return y + Account.nothing


@case(lambda: call(Account(1), ramp(2)))
def dynamic_attributes(account, x):
    setattr(account, "extra", x * 2)
    had = hasattr(account, "extra"), hasattr(account, "missing")
    value = getattr(account, "extra")
    default = getattr(account, "missing", 7)
    delattr(account, "extra")
    return value + default, had, "extra" in vars(account), account.__dict__


@case(lambda: call(Account(1), Account(2), ramp(2)))
def instances_refer_to_each_other(a, b, x):
    a.other, b.other = b, a
    a.other.balance = x
    return b.balance + 1, a.other.other is a


@case(lambda: call([Account(i) for i in range(3)], ramp(2)), lambda: call([], ramp(2)))
def instances_in_a_list(accounts, x):
    for i, account in enumerate(accounts):
        account.balance += i
    accounts.append(accounts[0] if accounts else None)
    return x + sum(a.balance for a in accounts if a)


@case()
def function_assigned_as_method(x):
    account = Account(2)
    Account.triple = lambda self: self.balance * 3
    account.own = lambda: "no self"
    return account.triple() + x, account.own(), Account.triple.__name__


@case(lambda: call(Account(1), ramp(2)))
def class_of_an_instance_changes(account, x):
    class Other(Account):
        def deposit(self, amount):
            self.balance = -amount
            return self

    account.__class__ = Other
    return account.deposit(3).balance + x, type(account).__name__, isinstance(account, Account)


@case()
def private_names_are_mangled(x):
    class Secret:
        __hidden = 3

        def get(self):
            self.__own = 4
            return self.__hidden + self.__own

    secret = Secret()
    return secret.get() + x, sorted(vars(secret)), Secret._Secret__hidden, hasattr(secret, "__hidden")


class Counted:
    made = 0

    def __init__(self, n=0):
        type(self).made += 1
        self.n = n


class Chooser:
    def __new__(cls, kind, n):
        if kind == "other":
            return Counted(n)
        if kind == "number":
            return n
        return super().__new__(cls)

    def __init__(self, kind, n):
        print("initialised", kind)
        self.n = n


@case(call(ramp(2)))
def new_that_gives_something_else(x):
    made = [Chooser(kind, 3) for kind in ("own", "other", "number")]
    return [type(each).__name__ for each in made], Counted.made, made[0].n, made[1].n, x + 1


@case(call(ramp(2)))
def classes_written_in_c_cannot_change(x):
    found = []
    for cls in (int, dict, type, object):
        try:
            cls.k = 1
        except TypeError as error:
            found.append(str(error))
    return found, hasattr(int, "k"), x + 1
