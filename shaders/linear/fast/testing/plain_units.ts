import type { KernelPlan, ParamTypes } from '../../../../src/gpu/kernel.js';

/** What matrix units do, by one invocation of each four: loops as long as no compiler can tell. */
const UNITS = /* wgsl */ `
/// To 11 bits, halves to even, as matrix units round to f16.
fn nearest_f16(value: f32) -> f32 {
  let bits = bitcast<u32>(value);
  return bitcast<f32>((bits + 0xfffu + ((bits >> 13u) & 1u)) & 0xffffe000u);
}

fn spelled(n: u32) -> u32 {
  return min(n, arrayLength(&weight));
}

fn load_rows(at: u32, pitch: u32) -> Left {
  var loaded = Left();
  for (var r = 0u; r < spelled(MATRIX_ROWS); r++) {
    for (var k = 0u; k < spelled(MATRIX_DEPTH); k++) {
      loaded[r * MATRIX_DEPTH + k] = x_tile[at + r * pitch + k];
    }
  }
  return loaded;
}

fn load_weights(at: u32, pitch: u32) -> Right {
  var loaded = Right();
  for (var n = 0u; n < spelled(MATRIX_OUTS); n++) {
    for (var k = 0u; k < spelled(MATRIX_DEPTH); k++) {
      loaded[k * MATRIX_OUTS + n] = weight_tile[at + n * pitch + k];
    }
  }
  return loaded;
}

fn multiply_add(a: Left, b: Right, sums: Result) -> Result {
  var result = sums;
  for (var r = 0u; r < spelled(MATRIX_ROWS); r++) {
    for (var n = 0u; n < spelled(MATRIX_OUTS); n++) {
      var sum = sums[r * MATRIX_OUTS + n];
      for (var k = 0u; k < spelled(MATRIX_DEPTH); k++) {
        sum = rounded_sum(fma(a[r * MATRIX_DEPTH + k], b[k * MATRIX_OUTS + n], sum));
      }
      result[r * MATRIX_OUTS + n] = sum;
    }
  }
  return result;
}
`;

const store = (tile: string): string => /* wgsl */ `
fn store_${tile}(at: u32, values: Result, pitch: u32) {
  for (var r = 0u; r < spelled(MATRIX_ROWS); r++) {
    for (var n = 0u; n < spelled(MATRIX_OUTS); n++) {
      ${tile}[at + r * pitch + n] = values[r * MATRIX_OUTS + n];
    }
  }
}
`;

/**
 * A plan by matrix units in plain WGSL, without features: f16 is f32 that is rounded to it. The order in which a product is summed is
 * ascending k, of which the hardware's differs. Other plans are as they were. `cuts`: the adapter's own quantizeToF16 cuts digits off, as
 * SwiftShader's does; on others it compiles sooner.
 */
export function spelledOut<P extends ParamTypes>(plan: KernelPlan<P>, cuts: boolean): KernelPlan<P> {
  if (!plan.fast?.startsWith('matrix')) return plan;
  const text = plan.wgsl.join('\n');
  const nearest = cuts ? 'nearest_f16' : 'quantizeToF16';
  const halfSums = text.includes('alias Total = f16;');
  const plain = text
    .replace(/^enable (?:subgroups|\w*subgroup_matrix.*);$|^diagnostic.*;$/gm, '')
    .replace(/\bElement\((?=values)/g, text.includes('alias Element = f16;') ? `${nearest}(` : 'f32(')
    .replace(/alias (Element|Total) = f16;/g, 'alias $1 = f32;')
    .replace('array<f16, ROW_TILE * OUT_TILE>', 'array<f32, ROW_TILE * OUT_TILE>')
    .replace(/subgroup_matrix_(?:left|right)<(\w+), (\w+), (\w+)>/g, 'array<$1, $2 * $3>')
    .replace(/subgroup_matrix_result<[^>]*>/, 'Result')
    .replace('subgroupMatrixLoad<Left, row_major>(&x_tile, ', 'load_rows(')
    .replace('subgroupMatrixLoad<Right, col_major>(&weight_tile, ', 'load_weights(')
    .replace('subgroupMatrixMultiplyAccumulate(', 'multiply_add(')
    .replace(/subgroupMatrixStore<row_major>\(&(\w+), /g, 'store_$1(')
    .replace(
      'subgroupBroadcastFirst(thread) / subgroupAdd(1u)',
      'select(4u, thread / (THREADS / 4u), thread % (THREADS / 4u) == 0u)',
    );
  const more = [
    'alias Result = array<Total, MATRIX_OUTS * MATRIX_ROWS>;',
    `fn rounded_sum(sum: f32) -> f32 { return ${halfSums ? `${nearest}(sum)` : 'sum'}; }`,
    UNITS,
    store(halfSums ? 'products' : 'piece_sums'),
  ];
  return { ...plan, wgsl: [plain, ...more] };
}
