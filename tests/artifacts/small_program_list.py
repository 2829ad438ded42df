"""Small programs and hostile changes.   PROGRAMS: a text, statements that run behind its import or edits of the text

In: nothing.  Out: rows for `small_programs.py`.  `m` is the imported module; a pair replaces text of the source.
"""

from __future__ import annotations

from typing import NamedTuple


class Small(NamedTuple):
    """A module with `program(x)`; changes behind `|` must leave its entry in use."""

    name: str
    text: str
    changes: tuple[str | tuple[str, str], ...]
    backend: str = "eager"
    unrelated: tuple[str, ...] = ()


PROGRAMS = [
    Small('math name', '''
import math, cmath, operator
def program(x): return x*math.sqrt(4.0)+math.pow(2.0,3)
''', (
        'import math,cmath; math.sqrt=lambda v: cmath.sqrt(v).real+1',
        'import math,operator; math.pow=operator.pow',
        'import math,cmath; math.sqrt=cmath.sqrt',
    )),
    Small('other globals', '''
S=2
def helper(x): return x*S
def program(x): return helper(x)
''', (
        "m.helper=types.FunctionType(m.helper.__code__, {**vars(m),'S':5})",
        "m.program=types.FunctionType(m.program.__code__, {**vars(m),'helper':lambda x:x})",
        "m.program=types.FunctionType(m.program.__code__, {**vars(m),'S':7})",
    )),
    Small('custom op shape', '''
@torch.library.custom_op("hl::grow", mutates_args=())
def grow(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, x[:1]])
@grow.register_fake
def _(x): return x.new_empty((x.shape[0]+1, *x.shape[1:]))
def program(x):
    y = grow(x.detach())
    return y*y.shape[0]
''', (
        ('return torch.cat([x, x[:1]])', 'return torch.cat([x, x[:1], x[:1]])'),
        ('torch.cat([x, x[:1]])\n@grow.register_fake\ndef _(x): return x.new_empty((x.shape[0]+1', 'torch.cat([x, x])\n@grow.register_fake\ndef _(x): return x.new_empty((x.shape[0]*2'),
        ('x[:1]]', 'x[:1]*2]'),
    )),
    Small('custom op autograd', '''
@torch.library.custom_op("hl::sc", mutates_args=())
def sc(x: torch.Tensor) -> torch.Tensor:
    return x*2
@sc.register_fake
def _(x): return torch.empty_like(x)
def bw(ctx, g): return g*2
sc.register_autograd(bw)
def program(x):
    return sc(x).sin()
''', (
        ('g*2', 'g*3'),
        ('x*2', 'x*4'),
    ), 'aot_eager'),
    Small('custom op mutates', '''
@torch.library.custom_op("hl::mut", mutates_args=())
def mut(x: torch.Tensor) -> torch.Tensor:
    return x.clone()+1
@mut.register_fake
def _(x): return torch.empty_like(x)
def program(x):
    a = x.detach().clone()
    b = mut(a)
    return a + b
''', (
        ('mutates_args=()', 'mutates_args={"x"}'),
        ('return x.clone()+1', 'return x.double()'),
    ), 'aot_eager'),
    Small('composite op', '''
lib = torch.library.Library("hlc","FRAGMENT")
lib.define("f(Tensor x) -> Tensor")
def f(x): return x*3
lib.impl("f", f, "CompositeImplicitAutograd")
def program(x): return torch.ops.hlc.f(x)+1
''', (
        ('x*3', 'x*4'),
    ), 'aot_eager'),
    Small('composite op eager', '''
lib = torch.library.Library("hlc","FRAGMENT")
lib.define("f(Tensor x) -> Tensor")
def f(x): return x*3
lib.impl("f", f, "CompositeImplicitAutograd")
def program(x): return torch.ops.hlc.f(x)+1
''', (
        ('x*3', 'x*4'),
        ('x*3', 'x.double()*3'),
    )),
    Small('autograd function', '''
K=3
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx,x): ctx.save_for_backward(x); return x*2
    @staticmethod
    def backward(ctx,g):
        x,=ctx.saved_tensors
        return g*x*K
def program(x): return F.apply(x).sin()
''', (
        ('g*x*K', 'g*x*K*2'),
        ('K=3', 'K=4'),
        ('return x*2', 'return x*5'),
        'm.F.backward=staticmethod(lambda ctx,g:g)',
        'm.K=9',
    ), 'aot_eager'),
    Small('lru', '''
import functools
@functools.lru_cache(None)
def k(n): return n*3
def program(x): return x*k(2)
''', (
        ('n*3', 'n*4'),
        'm.k=lambda n: 7',
        'm.k.cache_clear(); m.k.__wrapped__.__code__=(lambda n:n*9).__code__',
    )),
    Small('decimal', '''
import decimal
D=decimal.Decimal('1.5')
def program(x): return x*float(D)
''', (
        ('1.5', '2.5'),
    )),
    Small('datetime', '''
import datetime
T=datetime.timedelta(seconds=5)
D=datetime.date(2020,1,2)
def program(x): return x*T.total_seconds()+D.year
''', (
        ('seconds=5', 'seconds=6'),
        ('2020', '2021'),
    )),
    Small('abc', '''
import abc
class A(abc.ABC): pass
class B: pass
b=B()
def program(x): return x*2 if isinstance(b,A) else x*3
''', (
        'm.A.register(m.B)',
        'm.A.__subclasshook__=classmethod(lambda cls,c:True)',
    )),
    Small('instancecheck', '''
class M(type):
  def __instancecheck__(cls,o): return False
class A(metaclass=M): pass
b=3
def program(x): return x*2 if isinstance(b,A) else x*3
''', (
        ('return False', 'return True'),
        'm.M.__instancecheck__=lambda c,o:True',
    )),
    Small('doc', '''
def h(x):
  'one'
  return x
def program(x): return x*len(h.__doc__)+len(h.__name__)
''', (
        ("'one'", "'three'"),
        "m.h.__doc__='abcdef'",
        "m.h.__name__='zzzz'",
    )),
    Small('annotations', '''
def h(x: 'abc'): return x
def program(x): return x*len(h.__annotations__['x'])
''', (
        ("'abc'", "'abcde'"),
        "m.h.__annotations__={'x':'a'}",
    )),
    Small('classname', '''
class K: pass
def program(x): return x*len(K.__name__)+len(K.__module__)+len(K.__qualname__)
''', (
        "m.K.__name__='abcdef'",
        "m.K.__module__='q'",
        "m.K.__qualname__='qqqqqqqqqq'",
    )),
    Small('signature', '''
import inspect
def h(a,b=1): return a
def program(x): return x*len(inspect.signature(h).parameters)
''', (
        ('a,b=1', 'a,b=1,c=2'),
        'm.h=lambda: 0',
    )),
    Small('environ', '''
import os
def program(x): return x*2 if os.environ.get('HQ')=='1' else x*3
''', (
        "os.environ['HQ']='1'",
    )),
    Small('getenv', '''
import os
def program(x): return x*len(os.getenv('HQ2','abc'))
''', (
        "os.environ['HQ2']='1'",
        "os.getenv=lambda *a:'abcdefg'",
    )),
    Small('threads', '''
def program(x): return x*torch.get_num_threads()
''', (
        'torch.set_num_threads(torch.get_num_threads()+1)',
    )),
    Small('precision', '''
def program(x): return x*len(torch.get_float32_matmul_precision())
''', (
        "torch.set_float32_matmul_precision('medium')",
    )),
    Small('defdtype', '''
def program(x): return x+torch.ones(3)*torch.tensor(1.5)+torch.arange(3.).to(torch.get_default_dtype())
''', (
        'torch.set_default_dtype(torch.float64)',
    )),
    Small('defdev', '''
def program(x): return x.detach().to('cpu'), torch.ones(3)
''', (
        "torch.set_default_device('meta')",
    )),
    Small('determ', '''
def program(x): return x*2 if torch.are_deterministic_algorithms_enabled() else x*3
''', (
        'torch.use_deterministic_algorithms(True)',
    )),
    Small('seterr', '''
import numpy as np
def program(x): return x*float(np.float64(1.0)/np.float64(4.0)), np.geterr()['divide']
''', (
        "import numpy; numpy.seterr(divide='ignore')",
    )),
    Small('printopt', '''
def program(x): return x, str(torch.ones(2)/3)
''', (
        'torch.set_printoptions(precision=2)',
    )),
    Small('nparr', '''
import numpy as np
A=np.array([1.,2.,3.])
def program(x): return x*torch.from_numpy(A).float()
''', (
        ('2.,3.', '5.,3.'),
        'm.A[0]=9',
        "m.A=m.A.astype('float32')",
    )),
    Small('tensor const', '''
A=torch.tensor([1.,2.,3.])
def program(x): return x*A+A[0].item()
''', (
        ('2.,3.', '5.,3.'),
        ('[1.', '[9.'),
        'm.A=m.A.double()',
        'm.A=m.A[::1].repeat(2)[::2]',
        'm.A.requires_grad_()',
    )),
    Small('allow_in_graph aot', '''
K=2
def h(x): return x*K
torch.compiler.allow_in_graph(h)
def program(x): return h(x)+1
''', (
        ('x*K', 'x*K*2'),
        'm.K=5',
    ), 'aot_eager'),
    Small('allow_in_graph eager', '''
K=2
def h(x): return x*K
torch.compiler.allow_in_graph(h)
def program(x): return h(x)+1
''', (
        ('x*K', 'x*K*2'),
        'm.K=5',
        ('x*K', '(x*K).double()'),
    )),
    Small('jit module aot', '''
class M(torch.nn.Module):
  def forward(self,x): return x*2
h=torch.jit.script(M())
def program(x): return h(x)+1
''', (
        ('x*2', 'x*3'),
    ), 'aot_eager'),
    Small('subclass', '''
class T(torch.Tensor):
    k=2
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        return out
def program(x): return (x.detach().as_subclass(T)*2).as_subclass(torch.Tensor)
''', (
        'm.T.__torch_function__=classmethod(lambda cls,f,t,a=(),k=None: torch.Tensor.__torch_function__.__func__(cls,f,t,a,k or {})*3 if f is torch.Tensor.mul else torch.Tensor.__torch_function__.__func__(cls,f,t,a,k or {}))',
    )),
    Small('wrapper subclass', '''
class W(torch.Tensor):
    @staticmethod
    def __new__(cls, t): return torch.Tensor._make_wrapper_subclass(cls, t.shape, dtype=t.dtype)
    def __init__(self, t): self.t=t
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        un=lambda v: v.t if isinstance(v,W) else v
        out=func(*[un(a) for a in args],**{k:un(v) for k,v in (kwargs or {}).items()})
        return W(out+1) if isinstance(out, torch.Tensor) else out
    def __tensor_flatten__(self): return ['t'], None
    @staticmethod
    def __tensor_unflatten__(i, m, s, st): return W(i['t'])
def program(x): return (W(x.detach())*2).t
''', (
        ('out+1', 'out+2'),
    )),
    Small('mode', '''
from torch.overrides import TorchFunctionMode
class M(TorchFunctionMode):
    def __torch_function__(self, f, t, a=(), k=None): return f(*a, **(k or {}))
def program(x):
    with M(): return x*2
''', (
        'm.M.__torch_function__=lambda s,f,t,a=(),k=None: 5',
    )),
    Small('outer mode', '''
from torch.overrides import TorchFunctionMode
class M(TorchFunctionMode):
    def __torch_function__(self, f, t, a=(), k=None):
        r=f(*a, **(k or {}))
        return r*2 if f is torch.Tensor.mul else r
def program(x): return x*2
''', (
        'm.M().__enter__()',
    )),
    Small('hook global', '''
lin=torch.nn.Linear(3,3); torch.nn.init.ones_(lin.weight); torch.nn.init.ones_(lin.bias)
def program(x): return lin(x)
''', (
        'm.lin.register_forward_hook(lambda m,a,o:o*2)',
        'torch.nn.modules.module.register_module_forward_pre_hook(lambda m,a:(a[0]*2,))',
        'm.lin.forward=lambda x:x*7',
        'torch.nn.Linear.forward=lambda s,x:x*9',
        'torch.nn.functional.linear=lambda *a:a[0]*4',
        'torch.nn.Linear.__call__=lambda s,x:x',
        'torch.nn.Module.__call__=lambda s,x:x*11',
        "m.lin.__class__=type('L',(torch.nn.Linear,),{'forward':lambda s,x:x*5})",
        'torch.nn.Module._call_impl=lambda s,x:x*13',
        'm.lin.weight.requires_grad_(False)',
        'm.lin.bias=None',
    )),
    Small('tensor patch', '''
def program(x): return x.relu().sum()*2+torch.relu(x)
''', (
        'torch.Tensor.relu=lambda s:s*3',
        'torch.relu=lambda s:s*3',
        'torch.Tensor.__mul__=lambda s,o:s',
        'torch.Tensor.sum=torch.Tensor.mean',
        'torch.relu=torch.sigmoid',
        'torch.relu=torch.nn.functional.relu6',
        'torch.Tensor.relu=torch.Tensor.relu_',
    )),
    Small('same native name', '''
def program(x): return torch.sin(x)+x.cos()+torch.nn.functional.gelu(x)
''', (
        'torch.sin=torch.special.sinc',
        'torch.sin=torch.sin_',
        'import math; torch.sin=math.sin',
        "torch.nn.functional.gelu=torch._C._nn.gelu_ if hasattr(torch._C._nn,'gelu_') else torch._C._nn.silu",
        'torch._C._nn.gelu=torch._C._nn.silu',
        "torch.sin=torch._C._special.special_entr if hasattr(torch._C,'_special') else torch.cos",
    )),
    Small('np native', '''
import numpy as np
def program(x): return x*float(np.sqrt(4.0))+float(np.add(1,2))
''', (
        'import numpy; numpy.sqrt=numpy.cbrt',
        'import numpy; numpy.sqrt=lambda v:9.0',
        'import numpy, math; numpy.sqrt=math.sqrt',
        'import numpy; numpy.add=numpy.frompyfunc(lambda a,b:50,2,1)',
    )),
    Small('builtins', '''
def program(x): return x*len([1,2])+abs(-3)+sum([1,2])+max(1,2)
''', (
        'import builtins; builtins.len=lambda v:7',
        'import builtins; builtins.abs=lambda v:7',
        'm.len=lambda v:9',
        'import builtins; builtins.max=min',
        'import builtins,math; builtins.sum=math.fsum',
    )),
    Small('partial', '''
import functools
def h(x,a,*,b=1): return x*a+b
p=functools.partial(h,a=2)
q=functools.partial(p,b=3)
def program(x): return q(x)
''', (
        ('a=2', 'a=3'),
        ('b=3', 'b=4'),
        'm.q=m.functools.partial(m.p,b=9)',
        "m.p.keywords['a']=8",
        "m.q.keywords['b']=8",
        "m.q.__setstate__((m.h,(),{'a':1,'b':1},{}))",
    )),
    Small('partialmethod', '''
import functools
class A:
  def h(self,x,a): return x*a
  g=functools.partialmethod(h,a=2)
o=A()
def program(x): return o.g(x)
''', (
        ('a=2', 'a=3'),
    )),
    Small('dataclass', '''
import dataclasses
@dataclasses.dataclass(frozen=True)
class D:
  a:int=2
  b:float=1.5
  @property
  def c(self): return self.a*2
d=D()
def program(x): return x*d.a+d.b+D().a+d.c, dataclasses.asdict(d), [f.name for f in dataclasses.fields(d)]
''', (
        ('a:int=2', 'a:int=3'),
        'm.D.a=9',
        "object.__setattr__(m.d,'a',8)",
        'm.D.__init__=lambda s:None',
        'm.D.__dataclass_fields__={}',
        ('b:float', 'bb:float'),
    )),
    Small('dataclass cmp', '''
import dataclasses
@dataclasses.dataclass(order=True)
class D:
  a:int=2
  b:float=1.5
d,e=D(),D(2,1.0)
def program(x): return x*2 if d>e else x*3
''', (
        ('order=True)\nclass D:\n  a:int=2\n', 'order=True)\nclass D:\n  a:int=dataclasses.field(default=2)\n'),
        ('  b:float=1.5', '  b:float=dataclasses.field(default=1.5,compare=False)'),
        'm.d.b=0.5',
    )),
    Small('enum', '''
import enum
class E(enum.IntEnum):
  A=1
  B=2
class F(enum.Flag):
  X=1
  Y=2
class S(str,enum.Enum):
  P='pp'
def program(x): return x*E.A+E.B.value+len(S.P)+(F.X|F.Y).value+len(E)+E(2)
''', (
        ('A=1', 'A=3'),
        ('B=2', 'B=7'),
        ('Y=2', 'Y=4'),
        ("'pp'", "'ppp'"),
        ('B=2', 'B=2\n  C=3'),
        'm.E.B._value_=55',
        "m.E._member_map_['A']=m.E.B",
        'm.E._value2member_map_[2]=m.E.A',
    )),
    Small('namedtuple', '''
import collections
N=collections.namedtuple('N','a b',defaults=[3])
n=N(1)
def program(x): return x*n.b+N(2).b+len(N._fields)
''', (
        ('[3]', '[4]'),
        ('N(1)', 'N(2,9)'),
        ("'a b'", "'b a'"),
        "m.N._fields=('a',)",
        'm.N.__new__.__defaults__=(7,)',
    )),
    Small('moddict', '''
T={'a':1,'b':{'c':2}}
L=[1,[2,3]]
S={1,2}
FZ=frozenset({5})
def program(x): return x*T['b']['c']+L[1][0]+(2 in S)+len(FZ)+sum(T.get(k,5) for k in ('a','zz'))
''', (
        "m.T['b']['c']=9",
        "m.T['zz']=9",
        'm.L[1][0]=7',
        'm.S.discard(2)',
        "m.T['b']={'c':4}",
        ('{5}', '{5,6}'),
        'm.L[1]=(9,)',
    )),
    Small('super', '''
class A:
  def f(s,x): return x*2
class B(A):
  def f(s,x): return super().f(x)+1
b=B()
def program(x): return b.f(x)
''', (
        'm.A.f=lambda s,x:x*9',
        "m.B.__bases__=(type('Z',(),{'f':lambda s,x:x*8}),)",
        'm.b.f=lambda x:x*4',
        'm.B.f=lambda s,x:x',
    )),
    Small('mro insert', '''
class A:
  k=2
class M(A): pass
class B(M): pass
b=B()
def program(x): return x*b.k
''', (
        'm.M.k=5',
        'm.B.k=6',
        'm.b.k=7',
        'm.B.__getattribute__=lambda s,n:9',
        'm.B.__getattr__=lambda s,n:9',
        'm.M.k=property(lambda s:4)',
    )),
    Small('descriptor', '''
class D:
  def __get__(s,o,c): return 3
class A:
  d=D()
a=A()
def program(x): return x*a.d
''', (
        "m.D.__set__=lambda s,o,v:None; m.a.__dict__['d']=9",
        "m.a.__dict__['d']=9",
        'm.D.__get__=lambda *a:8',
    )),
    Small('slots', '''
class A:
  __slots__=('k',)
a=A(); a.k=2
def program(x): return x*a.k
''', (
        'm.a.k=5',
        'm.A.k=property(lambda s:9)',
    )),
    Small('cached_property', '''
import functools
class A:
  n=2
  @functools.cached_property
  def c(self): return self.n*3
a=A()
def program(x): return x*a.c
''', (
        'm.a.n=5',
        'm.a.c',
        "m.a.__dict__['c']=9",
        ('n*3', 'n*4'),
    )),
    Small('singledispatch', '''
import functools
@functools.singledispatch
def f(v,x): return x
@f.register
def _(v:int,x): return x*2
def program(x): return f(3,x)
''', (
        ('x*2', 'x*3'),
        'm.f.register(int)(lambda v,x:x*9)',
        'm.f.register(bool)(lambda v,x:x*9)',
    )),
    Small('threadlocal', '''
import threading
L=threading.local()
L.k=2
def program(x): return x*L.k
''', (
        'm.L.k=3',
        ('k=2', 'k=5'),
    )),
    Small('globals()', '''
K=2
def program(x): return x*globals()['K']+len([n for n in globals() if n.startswith('K')])
''', (
        'm.K=3',
        'm.KK=3',
    )),
    Small('eval', '''
K=2
def program(x): return x*eval('K*2')
''', (
        'm.K=3',
        ('K*2', 'K*4'),
    )),
    Small('logging', '''
import logging
log=logging.getLogger('hz')
def program(x):
  if log.isEnabledFor(logging.INFO): return x*2
  return x*3
''', (
        "m.log.setLevel('INFO')",
        'import logging; logging.disable(60)',
    )),
    Small('warnflt', '''
import warnings
def program(x):
  with warnings.catch_warnings(record=True) as w:
    warnings.warn('a')
  return x*len(w)
''', (
        "import warnings; warnings.simplefilter('ignore')",
        "import warnings; warnings.simplefilter('error')",
    )),
    Small('reclimit', '''
import sys
def program(x): return x*sys.getrecursionlimit()
''', (
        'sys.setrecursionlimit(5000)',
    )),
    Small('argv', '''
import sys
def program(x): return x*len(sys.argv)
''', (
        "sys.argv.append('x')",
    )),
    Small('decimalctx', '''
import decimal
def program(x): return x*float(decimal.Decimal(1)/decimal.Decimal(3))
''', (
        'import decimal; decimal.getcontext().prec=2',
    )),
    Small('cpu', '''
import os
def program(x): return x*os.cpu_count()
''', (
        'os.cpu_count=lambda: 77',
    )),
    Small('device_count', '''
def program(x): return x*(torch.cuda.device_count()+2)+torch.cuda.is_available()
''', (
        'torch.cuda.device_count=lambda:5',
        'torch.cuda.is_available=lambda:True',
    )),
    Small('version', '''
def program(x): return x*(2 if torch.__version__>='2' else 3)
''', (
        "torch.__version__='1.0'",
    )),
    Small('sdpa', '''
def program(x): return torch.nn.functional.scaled_dot_product_attention(x[None],x[None],x[None])
''', (
        'torch.backends.cuda.enable_math_sdp(False)',
    ), 'aot_eager'),
    Small('autocast', '''
def program(x): return x@x.T
''', (
        "torch.set_autocast_enabled('cpu',True)",
        "torch.autocast('cpu').__enter__()",
        "torch.set_autocast_enabled('cpu',True);torch.set_autocast_dtype('cpu',torch.float16)",
    ), 'aot_eager'),
    Small('op globals aot_eager', '''
K=1
class Cfg: k=2
cfg=Cfg()
def more(n): return n+K
@torch.library.custom_op("hl::grow", mutates_args=())
def grow(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x]+[x[:1]]*(more(0)))*cfg.k
@grow.register_fake
def _(x): return x.new_empty((more(x.shape[0]), *x.shape[1:]))
def bw(ctx, g): return g[:2]*cfg.k
grow.register_autograd(bw)
def program(x):
    y = grow(x)
    return y*y.shape[0]
''', (
        'm.K=3',
        'm.cfg.k=5',
        'm.more=lambda n: n+4',
        ('k=2', 'k=3'),
        ('ctx, g): return g[:2]', 'ctx, g): return 3*g[:2]'),
    ), 'aot_eager', ('m.unused=3',)),
    Small('lib aot_eager', '''
lib=torch.library.Library("hlm","FRAGMENT")
lib.define("g(Tensor x) -> Tensor")
K=2
def cpu(x): return x.repeat(K,1)
def meta(x): return x.new_empty((x.shape[0]*K, x.shape[1]))
lib.impl("g", cpu, "CPU"); lib.impl("g", meta, "Meta")
def setup(ctx, inputs, output): ctx.n=inputs[0].shape[0]
def bw(ctx, g): return g[:ctx.n]*K
torch.library.register_autograd("hlm::g", bw, setup_context=setup)
def program(x):
    y=torch.ops.hlm.g(x)
    return y*y.shape[0]
''', (
        'm.K=3',
        ('ctx.n]*K', 'ctx.n]*K*2'),
        'm.more=3',
    ), 'aot_eager'),
    Small('fake', '''
lib=torch.library.Library("hlf","FRAGMENT")
lib.define("g(Tensor x) -> Tensor")
K=2
lib.impl("g", lambda x: x.repeat(K,1), "CPU")
torch.library.register_fake("hlf::g", lambda x: x.new_empty((x.shape[0]*K, x.shape[1])))
def program(x):
    y=torch.ops.hlf.g(x.detach())
    return y*y.shape[0]
''', (
        'm.K=3',
    ), 'eager', ('m.z=3',)),
    Small('allowed inst', '''
class H:
    def __init__(self): self.k=2
    def __call__(self,x): return x*self.k
h=H()
def call(x): return h(x)
torch.compiler.allow_in_graph(call)
def program(x): return call(x)+1
''', (
        'm.h.k=7',
        'm.h=lambda x:x',
        'm.H.__call__=lambda s,x:x*9',
    ), 'aot_eager'),
    Small('aten override', '''
def program(x): return torch.sin(x)
''', (
        "import torch; m.lib=torch.library.Library('aten','IMPL'); m.lib.impl('sin', lambda x: x*2, 'CPU')",
        "import torch; m.lib=torch.library.Library('aten','IMPL'); m.lib.impl('sin', lambda x: torch.cos(x), 'AutogradCPU')",
    ), 'aot_eager'),
    Small('itemgetter', '''
import operator
it = operator.itemgetter(0)
T = (3, 4)
def program(x): return x*it(T)
''', (('itemgetter(0)', 'itemgetter(1)'),)),
    Small('attrgetter', '''
import operator
class A: a=1;b=2
o = A()
g = operator.attrgetter('a')
def program(x): return x*g(o)
''', (("getter('a')", "getter('b')"),)),
    Small('methodcaller', '''
import operator
g = operator.methodcaller('upper')
def program(x): return x, g('ab')
''', (("'upper'", "'title'"),)),
    Small('property subclass', '''
class prop(property): pass
class A:
    @prop
    def k(self): return 2
o = A()
def program(x): return x*o.k
''', (('return 2', 'return 3'),)),
    Small('typing', '''
import typing
G = typing.Optional[int]
def program(x): return x*len(typing.get_args(G))
''', (('Optional[int]', 'Union[int, str, None]'),)),
]
