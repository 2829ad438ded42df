"""Import every file of rewrites: each registers its own."""

from stator.remedies.rewrites import (  # noqa: F401
    branches,
    captured_iteration,
    dropped_calls,
    hoisted_arguments,
    outlined_operators,
    predicated_iteration,
    scalars,
    settings_changes,
    value_order,
)
