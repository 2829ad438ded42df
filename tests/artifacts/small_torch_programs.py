"""Small programs that read facts of torch, numpy and the machine, and hostile changes of them.   rows for `small_programs.py`"""

from __future__ import annotations

from tests.artifacts.small_program import Small

COMPOSITE = '''
lib = torch.library.Library("hlc","FRAGMENT")
lib.define("f(Tensor x) -> Tensor")
def f(x): return x*3
lib.impl("f", f, "CompositeImplicitAutograd")
def program(x): return torch.ops.hlc.f(x)+1
'''
ALLOWED = '''
K=2
def h(x): return x*K
torch.compiler.allow_in_graph(h)
def program(x): return h(x)+1
'''
PROGRAMS = [
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
    Small('composite op', COMPOSITE, (
        ('x*3', 'x*4'),
    ), 'aot_eager'),
    Small('composite op eager', COMPOSITE, (
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
    Small('allow_in_graph aot', ALLOWED, (
        ('x*K', 'x*K*2'),
        'm.K=5',
    ), 'aot_eager'),
    Small('allow_in_graph eager', ALLOWED, (
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
]
