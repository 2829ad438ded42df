def program(mat, vec, ivec, n, flag, items, table, point):
    match point.total:
        case int(m) if m > 2:
            match Vec2(n, torch.tensor([3, 1, 2, 0])[0].item()):
                case Vec2(x=a, y=b) if a > b:
                    print('falls', a, b)
                case {'a': int(v), **rest} if v > 1:
                    pass
    stator.graph_break()
    raise Oops(f'{i2}-{i2:>3}')
