"""Writes, faces of one memory, aliases between arguments, training steps and patched methods.

In: nothing.  Out: tables like those of `templates`, which they are joined to. Kind arr is a numpy array of four floats.
"""

from __future__ import annotations

MEMORY_EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "arr": (
        "face_of($vec)", "face_of($mat[0])", "face_of(G_ONE)", "G_ARRAY", "$arr[:]", "$arr.copy()", "$arr * 2", "numpy.asarray($arr)", "$arr",
        "numpy.frombuffer(G_BYTES, dtype=numpy.float32)", "numpy.frombuffer(G_SHORTS, dtype=numpy.float32)", "$arr[::-1]", "face_of($wide.reshape(-1)[:4])",
        "numpy.asarray(memoryview(G_SHORTS))", "$arr.reshape(2, 2).reshape(4)", "face_of(G_FACE)",
    ),
    "vec": (
        "torch.from_numpy($arr.copy())", "torch.from_numpy(G_ARRAY)", "torch.from_numpy(face_of($vec))", "torch.as_tensor($arr.copy())", "G_FACE", "G_BUFFER", "G_ONE", "G_TWO",
        "torch.frombuffer(G_BYTES, dtype=torch.float32)", "torch.frombuffer(G_SHORTS, dtype=torch.float32)", "torch.frombuffer(memoryview(G_BYTES), dtype=torch.float32)",
        "reseated($vec)", "torch.from_dlpack($vec.detach().clone())", "$vec.view(torch.int32).view(torch.float32)",
        "writers.move($vec, $vec)", "writers.whole($vec, $vec)", "writers.whole_reader($vec)", "writers.checked($vec)", "torch.ops.aten.add_.Tensor($vec, $vec)", "torch.ops.aten.mul_($vec, 2)",
        "torch.ops.aten.add.out($vec, $vec, out=$vec)", "torch.ops.aten.relu_($vec)", "F.relu($vec, inplace=True)", "F.hardtanh($vec, inplace=True)",
        "F.embedding(torch.tensor([0, 1]), $mat, max_norm=1.0)[0]", "torch.neg($vec, out=$mat[0])", "$vec.relu()", "$vec.neg_()", "G_LAYER.weight.grad if False else $vec",
    ),
    "mat": ("F.embedding(torch.arange(2), $mat, max_norm=2.0)", "torch.ops.aten.mul_.Scalar($mat, 2)", "$mat.relu()", "F.relu_($mat)", "torch.add($mat, 1, out=$mat)"),
    "scal": ("train($vec, G_LAYER, G_OPT)", "train($mat, G_LAYER, G_OPT)", "G_ADAM.param_groups[0]['params'][0].sum().detach()", "G_ONE[0]", "G_TWO[0]"),
    "int": (
        "limited($vec, $vec)", "limited(G_ONE, G_TWO)", "limited(G_LAYER.shift, $vec)", "limited($mat, $mat[0])", "int($arr[$small])", "int($arr.sum())", "G_BYTES[$small]", "int(G_SHORTS[$small])",
        "memoryview(G_BYTES)[3]", "memoryview(G_BYTES).cast('I')[$small] % 9", "len(G_BYTES)", "int(G_BUFFER[$small])", "int(G_ARRAY[0]) + int(G_FACE[0])", "G_READ()", "G_NS.v", "G_VARS['v']",
        "int($vec[0].item() > $int)", "(1 if $vec.sum().item() > 3 else 2)", "int($vec.storage_offset())", "len(writers.LOG)", "len(G_GRADS)", "$vec.untyped_storage()[0]", "int($vec._version < 99)",
    ),
    "bool": (
        "bool($arr[0] > 1)", "$vec[0].item() > 1", "G_ONE is G_TWO", "numpy.shares_memory($arr, $arr)", "same_address($vec, $vec)", "$arr.max() > 2", "vars(G_NS) is G_VARS", "G_LAYER.weight.requires_grad",
        "same_storage($vec, $vec)", "bool((G_ONE == G_TWO).all())", "G_LAYER.weight.grad is None", "G_ONE.requires_grad",
    ),
    "float": ("float($arr[$small])", "float($arr.mean())", "G_SHORTS[0]", "float(G_TWO[0])", "float($scal)", "G_GRADS[-1]", "float($vec[0])"),
    "list": ("[int(v) for v in $arr]", "list(G_BYTES[:3])", "[len(writers.LOG)]", "[int(v) for v in G_SHORTS]", "[int(v) for v in face_of(G_TWO)]"),
}  # fmt: skip

MEMORY_LITERALS = {"arr": ("numpy.ones(4, dtype=numpy.float32)",)}

MEMORY_SIMPLE = (
    "$arr[$small] = $int", "$arr += 1", "$arr[:] = 2", "$arr.sort()", "$arr.fill($small)", "numpy.add($arr, 1, out=$arr)", "print($arr)", "print($arr[0], $vec[0])",
    "G_BYTES[3] = $small", "G_BYTES[0:4] = G_BYTES[4:8]", "memoryview(G_BYTES)[7] = 64", "G_SHORTS[0] = $small", "print(bytes(G_BYTES[:8]))", "print(G_SHORTS)", "x = memoryview(G_BYTES); G_BUFFER.add_(1); print(x[3], x.tolist()[:4])",
    "writers.bump($vec)", "writers.bump($mat[0], 2.0)", "writers.bump($vec, by=$float)", "writers.swap($vec, $vec)", "writers.swap(G_ONE, G_TWO)", "writers.bump_all([$vec, $vec])", "writers.noisy($vec)", "writers.noisy($mat)",
    "writers.write_then_fail($vec)", "writers.bump($vec); writers.checked($vec)", "$vec.add_(1); writers.checked($vec)", "writers.noisy($vec); $vec[$ivec]", "torch.ops.aten.add_.Tensor($vec, 1); $vec[$ivec + 2]", "writers.whole($vec, $vec); $mat[$ivec]",
    "torch.ops.fuzz.bump.default($vec, 1.0)", "torch.ops.fuzz.swap($vec, $vec)", "torch.ops.aten.add_.Tensor($vec, $vec)", "torch.ops.aten.add_.Tensor($mat, $vec, alpha=2)", "torch.ops.aten.copy_.default($vec, $vec)", "torch.ops.aten.zero_($vec)",
    "torch.ops.aten.mul.out($vec, $vec, out=$vec)", "torch.ops.aten.fill_.Scalar($vec, $int)", "torch.ops.aten.sub.Tensor($vec, $vec).add_(1)", "torch.sub($vec, $vec, out=$vec)", "torch.cumsum($vec, 0, out=$vec)", "torch.max($mat, 0, out=($vec, $ivec))",
    "torch._foreach_add_([$vec, $vec], 1)", "torch._foreach_add_([$vec, $mat[0]], [$vec, $vec])", "torch._foreach_mul_([$vec], 2)", "torch._foreach_zero_([$vec, $mat])", "torch._foreach_copy_([$vec], [$vec])", "torch._foreach_add_([G_ONE, G_TWO], [G_TWO, G_ONE])",
    "torch._foreach_add_([torch.from_numpy(G_ARRAY)], 1); print(G_ARRAY[0])", "torch._foreach_neg_([$vec, $vec])", "F.embedding(torch.tensor([0, 0, 1]), $mat, max_norm=1.0)", "F.relu($mat, inplace=True)", "F.dropout($vec, 0.5, training=True, inplace=True)",
    "F.embedding($ivec.abs() % 2, $mat, max_norm=0.5); print(int($mat[0].sum()))", "G_ONE.add_(1); print(1 if G_TWO[0].item() > 2 else 2)", "$vec.add_(1); print(1 if $vec[0].item() > 2 else 2)", "G_FACE.mul_(2); print(G_ARRAY)", "G_ARRAY[0] = 7; print(G_FACE)",
    "G_BUFFER.add_(1); print(G_BYTES[3], G_BYTES[7])", "G_BYTES[3] = 64; print(G_BUFFER)", "x = face_of($vec); $vec.add_(1); print(x)", "x = face_of($vec); x[0] = 5; print($vec)", "x = $vec; y = x[1:3]; writers.bump(y); print(x)", "x = $vec.untyped_storage(); $vec.add_(1); print(x[3])",
    "G_WRITE($int); print(G_READ())", "G_NS.v = $int; print(G_VARS['v'])", "G_VARS['v'] = $int; print(G_NS.v)", "G_VARS['new'] = $int; print(sorted(vars(G_NS)))", "del G_NS.w; print(sorted(G_VARS))", "x = globals(); x['G_STEP'] = $int; print(G_STEP)", "vars($point)['x'] = $int; print($point.x)",
    "bump_global.__globals__['G_COUNT'] = $int; print(G_COUNT)", "G_ONE.requires_grad_(); print(G_TWO.requires_grad)", "G_ONE.data = $vec.detach().clone(); print(G_TWO)", "G_TWO.resize_(2); print(G_ONE.shape)", "G_TWO.extra = $int; print(hasattr(G_ONE, 'extra'))",
    "print(train($vec, G_LAYER, G_OPT))", "train($mat, G_LAYER, G_OPT)", "G_LAYER.weight.requires_grad_($bool)", "G_OPT.zero_grad(set_to_none=$bool)", "G_OPT.step()", "G_OPT.param_groups[0]['lr'] = $float", "print(G_LAYER.weight.grad)", "print(G_OPT.state[G_LAYER.weight])",
    "h = $par.register_hook(seen_gradient); ($par * $vec).sum().backward(); h.remove()", "h = G_LAYER.register_forward_hook(lambda m, a, out: out * 2); x = G_LAYER($vec); h.remove(); print(x)", "h = G_LAYER.register_forward_pre_hook(lambda m, a: (a[0] + 1,)); print(G_LAYER($vec)); h.remove()",
    "h = G_LAYER.weight.register_hook(seen_gradient); train($vec, G_LAYER, G_OPT); h.remove()", "h = $par.register_post_accumulate_grad_hook(lambda p: G_GRADS.append(float(p.grad.sum()))); ($par * 2).sum().backward(); h.remove()",
    "p = G_ADAM.param_groups[0]['params'][0]; (p * $vec).sum().backward(); G_ADAM.step(); G_ADAM.zero_grad()", "torch.optim.SGD([G_LAYER.weight], lr=$float).step()", "torch.nn.utils.clip_grad_norm_(G_LAYER.parameters(), 1.0)",
    "with torch.no_grad(): torch._foreach_mul_(list(G_LAYER.parameters()), 0.5)", "with torch.no_grad(): writers.bump(G_LAYER.weight)", "writers.patch_methods(); print($vec.relu()); writers.restore_methods()", "writers.patch_methods(); $vec.neg_(); writers.restore_methods()",
    "torch.Tensor.relu = lambda s: s + 1; print($vec.relu()); del torch.Tensor.relu", "print(float($scal), $vec.relu().sum())",
)  # fmt: skip
