"""Small programs that read facts of Python, and hostile changes of them.   rows for `small_programs.py`"""

from __future__ import annotations

from tests.artifacts.small_program import Small

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
