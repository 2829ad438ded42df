// Operators of the graph that compute numbers: stator::slice_bound, stator::item_of_sum, stator::float_add and its like.
//
// In: the numbers of one call of a graph.  Out: a number.  What they mean, and what compilers are told of them, stands in
// stator/graph/values/graph_numbers.py. They are here because a call of an operator written in Python takes 10 us.

#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>

namespace {

c10::SymInt slice_bound(const at::Tensor& /*origin*/, c10::SymInt place, c10::SymInt size,
                        c10::SymInt least) {
    const int64_t end = size.expect_int(), given = place.expect_int();
    const int64_t from_start = given < 0 ? given + end : given;
    return std::max(std::min(std::max<int64_t>(from_start, 0), end), least.expect_int());
}

c10::SymInt item_of_sum(const at::Tensor& element, c10::SymInt number) {
    // In 64 bits that wrap around, as the sum of tensors does.
    return static_cast<int64_t>(static_cast<uint64_t>(element.item<int64_t>()) + static_cast<uint64_t>(number.expect_int()));
}

at::Tensor boxed(double number) { return at::scalar_tensor(number, at::TensorOptions(at::kDouble)); }

at::Tensor float_add(const at::Scalar& left, const at::Scalar& right) { return boxed(left.toDouble() + right.toDouble()); }

at::Tensor float_sub(const at::Scalar& left, const at::Scalar& right) { return boxed(left.toDouble() - right.toDouble()); }

at::Tensor float_mul(const at::Scalar& left, const at::Scalar& right) { return boxed(left.toDouble() * right.toDouble()); }

}  // namespace

TORCH_LIBRARY_FRAGMENT(stator, library) {
    library.def("slice_bound(Tensor origin, SymInt place, SymInt size, SymInt least) -> SymInt");
    library.def("float_add(Scalar left, Scalar right) -> Tensor");
    library.def("float_sub(Scalar left, Scalar right) -> Tensor");
    library.def("float_mul(Scalar left, Scalar right) -> Tensor");
    library.def("item_of_sum(Tensor element, SymInt number) -> SymInt");
}

TORCH_LIBRARY_IMPL(stator, CompositeExplicitAutograd, library) {
    library.impl("slice_bound", slice_bound);
    library.impl("float_add", float_add);
    library.impl("float_sub", float_sub);
    library.impl("float_mul", float_mul);
    library.impl("item_of_sum", item_of_sum);
}
