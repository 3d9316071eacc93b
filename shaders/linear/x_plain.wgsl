// Activations as they are; the counterpart of linear/x_normed.wgsl.

alias Asked = bool;

fn ask_x(row: u32, thread: u32) -> Asked {
  return false;
}

fn stage_x(row: u32, thread: u32, asked: Asked) {}

/// Elements 4 * k4 .. 4 * k4 + 3 of a row, k4 counted over the whole contraction.
fn load_x(row: u32, k4: u32) -> vec4<f32> {
  return x[row * params.x_stride4 + k4 - params.x_start4];
}
