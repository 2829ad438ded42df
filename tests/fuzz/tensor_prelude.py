"""The second half of the opening of every generated program: models, memory, coroutines, inputs.

In: nothing.  Out: `TENSOR_PRELUDE`, a text.  `inputs(k)` of that text makes the arguments of call number k; call 1
repeats call 0.
"""

TENSOR_PRELUDE = '''\
class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0, -1.0, 0.5]))
        self.register_buffer("shift", torch.ones(4))
        self.steps = 0
        self.scale = 2.0

    def forward(self, x):
        if self.training:
            self.steps += 1
            self.shift += 1
        return (x * self.weight + self.shift) * self.scale


G_LAYER = Layer()
G_OPT = torch.optim.SGD(G_LAYER.parameters(), lr=0.125, momentum=0.5)
G_ADAM = torch.optim.Adam([torch.nn.Parameter(torch.ones(4))], lr=0.5, foreach=True)
G_GRADS, G_LOG = [], writers.LOG


def seen_gradient(grad):
    G_GRADS.append(float(grad.sum()))
    return grad * 2


def train(x, layer, optimizer):
    optimizer.zero_grad()
    loss = (layer(x) ** 2).mean()
    if loss.requires_grad:
        loss.backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 4.0)
        optimizer.step()
    return loss.detach()


def limited(limit, x):
    x.add_(1)
    return 1 if limit.sum().item() > 6 else 2


def face_of(tensor):
    return tensor.detach().numpy()


def same_address(one, other):
    """Both live while they are compared: the address of a dead tensor says nothing."""
    return one.data_ptr() == other.data_ptr()


def same_storage(one, other):
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def reseated(vec):
    """On the same memory, and never beyond its end."""
    return torch.tensor([]).set_(vec.untyped_storage(), vec.storage_offset(), vec.shape, vec.stride())


def share_memory(k):
    """Two names for one memory in some calls, for two memories in others: tensors, faces, cells, an object and its dict."""
    global G_ARRAY, G_FACE, G_BYTES, G_BUFFER, G_SHORTS, G_ONE, G_TWO, G_READ, G_WRITE, G_NS, G_VARS
    shared = k in (2, 4)
    G_ARRAY = numpy.array([1.0, 2.0, 3.0, k], dtype=numpy.float32)
    G_FACE = torch.from_numpy(G_ARRAY if shared else G_ARRAY.copy())
    G_BYTES = bytearray(numpy.arange(4, dtype=numpy.float32).tobytes())
    G_BUFFER = torch.frombuffer(G_BYTES if shared else bytearray(G_BYTES), dtype=torch.float32)
    G_SHORTS = array.array("f", [1.0, 0.0, 2.0, k])
    G_ONE = torch.tensor([2.0, 1.0, -1.0, k])
    G_TWO = G_ONE if shared else G_ONE.view(2, 2).view(4) if k == 3 else G_ONE + 1
    G_READ, G_WRITE = writers.cells(k, shared)
    G_NS = types.SimpleNamespace(v=k, w=2)
    G_VARS = vars(G_NS) if shared else {"v": k, "w": 3}
    G_LAYER.weight.requires_grad_(k != 3)
    writers.LOG.clear()
    G_GRADS.clear()
    (writers.patch_methods if k == 3 else writers.restore_methods)()


class Ready:
    def __init__(self, value):
        self.value = value

    def __await__(self):
        got = yield self.value
        return got + self.value

    async def __aenter__(self):
        await Ready(1)
        return self

    async def __aexit__(self, kind, value, tb):
        print("left", kind.__name__ if kind else None)
        return kind is Oops


async def later(v):
    return await Ready(v) + 1


async def adds(a, b):
    async with Ready(a) as ready:
        return ready.value + await later(b)


async def ticks(count):
    for i in range(count):
        await Ready(i)
        yield i


async def collected(count):
    return [i + 1 async for i in ticks(count)]


async def guarded(v):
    async with Ready(v):
        print(await later(v))
        checked(v)


def drive(coroutine):
    sent = None
    while True:
        try:
            sent = coroutine.send(sent)
        except StopIteration as stop:
            return stop.value


def stars(*args, k=1, **more):
    return len(args) * 10 + k + len(more)


def posonly(x, /, y=2):
    return x * 2 + y


def kwonly(*, y):
    return y + 1


def adder(step):
    def add(v):
        nonlocal step
        step += 1
        return v + step
    return add


@functools.lru_cache(maxsize=None)
def cached(v):
    return v * 3


def set_globals(v):
    global G_STEP, G_RATE
    G_STEP, G_RATE = v, v / 2


def inputs(k):
    global G_STEP, G_RATE, G_PARAM
    torch.manual_seed(k)
    G_STEP, G_RATE = (1, 1, 1, 2, 3)[k], (0.5, 0.5, 0.25, 2.0, 4.5)[k]
    G_PARAM = torch.tensor([1.0, -2.0, 3.0, k], requires_grad=True)
    share_memory(k)
    rows = (3, 3, 3, 5, 2)[k]
    mat = (torch.randn(rows, 4) * 4).round()
    vec = mat[1] if k == 2 else (torch.randn(4) * 4).round()
    ivec = torch.randint(-5, 9, (4,))
    items = [4, 1, 3] if k < 3 else [7, 2, 5, 6]
    table = {"a": 5, "c": 1} if k != 4 else {"b": 2, "a": 9}
    point = Late(4, 2) if k == 4 else Point((2, 2, 2, 3, 5)[k], 2)
    if k == 3:
        point.items = items
    return mat, vec, ivec, (5, 5, 6, 8, 3)[k], k % 2 == 0, items, table, point


'''
