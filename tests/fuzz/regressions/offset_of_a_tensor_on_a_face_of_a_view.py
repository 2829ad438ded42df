def program(mat, vec, ivec, n, flag, items, table, point):
    v1 = torch.from_numpy(face_of(G_LAYER.weight.grad if False else vec))
    match Vec2(int(G_BUFFER[1]), int(v1.storage_offset()) if stator.graph_break() is None else None):
        case Vec2(0, y) | Vec2(y, 0):
            print('axis', y)
