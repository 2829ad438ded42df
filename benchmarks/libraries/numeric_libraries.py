"""Probabilistic programs, solvers, geometry, metrics, reinforcement learning."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.libraries.registry import Compile, numbers, program, trained


@program("torchmetrics")
def metrics(compile: Compile) -> Any:
    from torchmetrics import MeanSquaredError
    from torchmetrics.classification import MulticlassAccuracy
    from torchmetrics.functional import mean_absolute_error, pearson_corrcoef

    accuracy, error = MulticlassAccuracy(num_classes=4, validate_args=False), MeanSquaredError()

    def step(logits: torch.Tensor, target: torch.Tensor) -> Any:
        accuracy.update(logits, target)
        error.update(logits[:, 0], target.float())
        return mean_absolute_error(logits[:, 0], target.float()), pearson_corrcoef(logits[:, 0], logits[:, 1])

    call = compile(step)
    found = [call(numbers(6, 4, seed=k), torch.arange(6) % 4) for k in range(3)]
    return [found, accuracy.compute(), error.compute()]


@program("torchmetrics")
def image_metrics(compile: Compile) -> Any:
    from torchmetrics.functional.image import peak_signal_noise_ratio, structural_similarity_index_measure

    call = compile(
        lambda a, b: [
            structural_similarity_index_measure(a, b, data_range=1.0),
            peak_signal_noise_ratio(a, b, data_range=1.0),
        ]
    )
    return [call(numbers(1, 3, 24, 24, seed=k).sigmoid(), numbers(1, 3, 24, 24).sigmoid()) for k in range(2)]


@program("kornia")
def kornia_filters(compile: Compile) -> Any:
    import kornia

    call = compile(
        lambda image: [
            kornia.filters.gaussian_blur2d(image, (3, 3), (1.0, 1.0)),
            kornia.color.rgb_to_hsv(image),
            kornia.filters.sobel(image),
            kornia.filters.median_blur(image, (3, 3)),
        ]
    )
    return [call(numbers(1, 3, 16, 16, seed=k).sigmoid()) for k in range(2)]


@program("kornia")
def kornia_geometry(compile: Compile) -> Any:
    import kornia

    def warp(image: torch.Tensor, angle: torch.Tensor) -> Any:
        turned = kornia.geometry.transform.rotate(image, angle)
        points = kornia.geometry.conversions.convert_points_to_homogeneous(image[0, :, :2, 0])
        return turned, points, kornia.geometry.transform.resize(turned, (8, 8))

    call = compile(warp)
    return [call(numbers(1, 3, 16, 16, seed=k), torch.tensor([30.0])) for k in range(2)]


@program("kornia")
def kornia_augmentation(compile: Compile) -> Any:
    import kornia.augmentation as augmentation

    model = nn.Sequential(
        augmentation.RandomHorizontalFlip(p=1.0),
        augmentation.Normalize(torch.tensor([0.5] * 3), torch.tensor([0.2] * 3)),
    )
    call = compile(model)
    return [call(numbers(2, 3, 8, 8, seed=k)) for k in range(2)]


@program("gpytorch")
def gaussian_process(compile: Compile) -> Any:
    import gpytorch

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean, self.kernel = (
                gpytorch.means.ConstantMean(),
                gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()),
            )

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    x, y = numbers(8, 1), numbers(8)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(x, y, likelihood)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    model.train(), likelihood.train()
    call = compile(lambda inputs, targets: -objective(model(inputs), targets))
    return trained(model, lambda: call(x, y))


@program("gpytorch")
def kernels(compile: Compile) -> Any:
    import gpytorch

    kernel = gpytorch.kernels.MaternKernel(nu=2.5)
    call = compile(lambda x: kernel(x).to_dense() @ x)
    return [call(numbers(n, 2)).detach() for n in (5, 7)]


@program("pyro")
def variational_inference(compile: Compile) -> Any:
    import pyro
    from pyro import distributions

    pyro.clear_param_store()

    def model(data: torch.Tensor) -> None:
        mean = pyro.sample("mean", distributions.Normal(0.0, 10.0))
        with pyro.plate("data", len(data)):
            pyro.sample("obs", distributions.Normal(mean, 1.0), obs=data)

    def guide(data: torch.Tensor) -> None:
        location = pyro.param("location", torch.tensor(0.0))
        pyro.sample("mean", distributions.Normal(location, 0.5))

    loss = compile(pyro.infer.Trace_ELBO().differentiable_loss)
    found = []
    for k in range(3):
        value = loss(model, guide, numbers(6, seed=k))
        value.backward()
        found.append(value.detach())
    return [found, pyro.param("location").grad]


@program("pyro")
def pyro_distributions(compile: Compile) -> Any:
    from pyro.distributions import Dirichlet, LowRankMultivariateNormal, Normal

    call = compile(
        lambda x: [
            Normal(x, 1.0).to_event(1).log_prob(x * 2),
            Dirichlet(x.exp()).log_prob(x.softmax(-1)),
            LowRankMultivariateNormal(x, x[..., None], x.exp()).log_prob(x + 1),
        ]
    )
    return [call(numbers(3, 4, seed=k)) for k in range(2)]


@program("torchdiffeq")
def differential_equation(compile: Compile) -> Any:
    from torchdiffeq import odeint

    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
    solve = compile(lambda y, times: odeint(lambda t, state: model(state) * t, y, times, method="rk4"))
    return trained(model, lambda: solve(numbers(3, 4), torch.linspace(0.0, 1.0, 5))[-1].pow(2).mean())


@program("torchdiffeq")
def adaptive_equation(compile: Compile) -> Any:
    from torchdiffeq import odeint

    model = nn.Linear(4, 4)
    call = compile(model)
    return odeint(
        lambda t, y: call(y).tanh(), numbers(2, 4), torch.linspace(0.0, 1.0, 3), method="dopri5"
    ).detach()


@program("torchsde")
def stochastic_equation(compile: Compile) -> Any:
    import torchsde

    class Equation(nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self) -> None:
            super().__init__()
            self.drift, self.spread = compile(nn.Linear(3, 3)), nn.Parameter(torch.full((3,), 0.1))

        def f(self, t: Any, y: torch.Tensor) -> torch.Tensor:
            return self.drift(y)

        def g(self, t: Any, y: torch.Tensor) -> torch.Tensor:
            return self.spread.expand_as(y)

    motion = torchsde.BrownianInterval(0.0, 1.0, size=(2, 3), entropy=3)
    return torchsde.sdeint(
        Equation(), numbers(2, 3), torch.linspace(0, 1, 3), bm=motion, dt=0.25, method="euler"
    ).detach()


@program("tensordict")
def tensordict(compile: Compile) -> Any:
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential

    model = TensorDictSequential(
        TensorDictModule(nn.Linear(4, 8), in_keys=["x"], out_keys=["hidden"]),
        TensorDictModule(nn.Linear(8, 2), in_keys=["hidden"], out_keys=["y"]),
    )
    call = compile(lambda x: model(TensorDict({"x": x}, batch_size=[x.shape[0]]))["y"])
    return trained(model, lambda: call(numbers(3, 4)).pow(2).mean())


@program("tensordict")
def tensordict_functions(compile: Compile) -> Any:
    from tensordict import TensorDict

    def step(data: Any) -> Any:
        data = data.clone()
        data["c"] = data["a"] + data["b", "d"]
        return (data * 2).reshape(-1), data.select("c").to_dict(), torch.stack([data, data], 0)["a"]

    call = compile(step)
    found = call(TensorDict({"a": numbers(2, 3), "b": {"d": numbers(2, 3, seed=1)}}, batch_size=[2, 3]))
    return [found[0].to_dict(), *found[1:]]


@program("torchrl")
def policy_loss(compile: Compile) -> Any:
    from tensordict import TensorDict
    from tensordict.nn import NormalParamExtractor, TensorDictModule
    from torchrl.modules import ProbabilisticActor, TanhNormal, ValueOperator
    from torchrl.objectives import ClipPPOLoss

    actor = ProbabilisticActor(
        TensorDictModule(
            nn.Sequential(nn.Linear(4, 4), NormalParamExtractor()),
            in_keys=["observation"],
            out_keys=["loc", "scale"],
        ),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        return_log_prob=True,
    )
    critic = ValueOperator(nn.Linear(4, 1), in_keys=["observation"])
    loss = ClipPPOLoss(actor, critic)
    data = TensorDict(
        {
            "observation": numbers(5, 4),
            "action": numbers(5, 2).tanh() * 0.9,
            "action_log_prob": numbers(5),
            "advantage": numbers(5, 1),
            "value_target": numbers(5, 1),
        },
        batch_size=[5],
    )
    call = compile(loss)
    return trained(loss, lambda: sum(call(data)[name] for name in ("loss_objective", "loss_critic")), 2)


@program("torchrl")
def value_estimates(compile: Compile) -> Any:
    from torchrl.objectives.value.functional import generalized_advantage_estimate

    done = torch.zeros(2, 5, 1, dtype=torch.bool)
    call = compile(
        lambda value, later, reward: generalized_advantage_estimate(
            0.9, 0.95, value, later, reward, done=done, terminated=done
        )
    )
    return [call(*[numbers(2, 5, 1, seed=k + n) for n in range(3)]) for k in range(2)]


@program("pytorch_metric_learning")
def metric_learning(compile: Compile) -> Any:
    from pytorch_metric_learning import losses

    model, labels = nn.Linear(8, 4), torch.tensor([0, 0, 1, 1, 2, 2])
    loss, call = losses.NTXentLoss(), None
    call = compile(lambda x: loss(model(x), labels))
    return trained(model, lambda: call(numbers(6, 8)))


@program("pytorch_msssim")
def similarity(compile: Compile) -> Any:
    from pytorch_msssim import SSIM, ms_ssim

    one = compile(SSIM(data_range=1.0, channel=3))
    assert ms_ssim is not None
    return [one(numbers(1, 3, 24, 24, seed=k).sigmoid(), numbers(1, 3, 24, 24).sigmoid()) for k in range(2)]


@program("zuko")
def normalizing_flow(compile: Compile) -> Any:
    import zuko

    flow = zuko.flows.MAF(features=3, transforms=2, hidden_features=(16,))
    call = compile(lambda x: -flow().log_prob(x).mean())
    return trained(flow, lambda: call(numbers(5, 3)))


@program("nflows")
def coupling_flow(compile: Compile) -> Any:
    from nflows.distributions.normal import StandardNormal
    from nflows.flows.base import Flow
    from nflows.transforms import CompositeTransform, MaskedAffineAutoregressiveTransform, ReversePermutation

    flow = Flow(
        CompositeTransform([ReversePermutation(3), MaskedAffineAutoregressiveTransform(3, 8)]),
        StandardNormal([3]),
    )
    call = compile(lambda x: -flow.log_prob(x).mean())
    return trained(flow, lambda: call(numbers(5, 3)))


@program("geoopt")
def riemannian(compile: Compile) -> Any:
    import geoopt

    ball = geoopt.PoincareBall()
    call = compile(
        lambda x, y: [
            ball.dist(ball.expmap0(x), ball.expmap0(y)),
            ball.mobius_add(ball.expmap0(x), ball.expmap0(y)),
        ]
    )
    return [call(numbers(4, 3, seed=k) * 0.1, numbers(4, 3, seed=k + 1) * 0.1) for k in range(2)]


@program("e3nn")
def equivariant(compile: Compile) -> Any:
    from e3nn import o3

    call = compile(lambda x: o3.spherical_harmonics([0, 1, 2], x, normalize=True, normalization="component"))
    return [call(numbers(4, 3, seed=k)) for k in range(2)]


@program("captum")
def attributions(compile: Compile) -> Any:
    from captum.attr import IntegratedGradients, Saliency

    model = compile(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    x = numbers(3, 4)
    return [
        IntegratedGradients(model).attribute(x, target=1, n_steps=8),
        Saliency(model).attribute(x.clone().requires_grad_(), target=0),
    ]


@program("botorch")
def acquisition(compile: Compile) -> Any:
    from botorch.acquisition.logei import check_tau
    from botorch.utils.safe_math import fatmax, log1mexp, logplusexp, smooth_amax

    assert check_tau is not None
    call = compile(
        lambda x: [log1mexp(-x.abs() - 0.1), logplusexp(x, x * 2), smooth_amax(x, dim=-1), fatmax(x, dim=-1)]
    )
    return [call(numbers(3, 4, seed=k)) for k in range(2)]


@program("jaxtyping")
def annotated(compile: Compile) -> Any:
    from jaxtyping import Float, jaxtyped

    square, rows = Float[torch.Tensor, "n n"], Float[torch.Tensor, "n d"]

    def attention(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return functional.softmax(q @ k.T, dim=-1)

    attention.__annotations__ = {"q": rows, "k": rows, "return": square}
    call = compile(jaxtyped(typechecker=None)(attention))
    return [call(numbers(n, 4), numbers(n, 4, seed=1)) for n in (3, 5)]
