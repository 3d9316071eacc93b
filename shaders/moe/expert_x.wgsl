// Activations as they are, row by row or (row, slot) by (row, slot); the counterpart of linear/linear/x_normed.wgsl.

alias Asked = bool;

fn ask_x(row: u32, thread: u32) -> Asked {
  return false;
}

fn stage_x(row: u32, thread: u32, asked: Asked) {}

/// Elements 4 * k4 .. 4 * k4 + 3 of a row of x.
fn load_x(row: u32, k4: u32) -> vec4<f32> {
  return x[row * params.x_stride4 + k4];
}
