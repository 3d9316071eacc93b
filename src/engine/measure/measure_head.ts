import { type Buffer, type Device, type Program, Recorder } from '../../gpu/index.js';
import type { NormConfig } from '../../model/config/model_config.js';
import { allocateMatrix, type Matrix } from '../../model/weights/matrix.js';
import { modelSizes } from '../../model/model_sizes.js';
import { recordLinear } from '../../model/layers/linear/linear.js';
import { activationStride } from '../../model/layers/roles.js';
import { fitLinear, type LinearMeasure, type LinearSample } from '../../placement/index.js';
import { BATCH, type ProbeSubject } from './probe.js';
import { timeProgram } from './timing.js';

/** Of the head's weights, so many are enough to tell its speed. */
const GPU_BYTES = 64 * 2 ** 20;
const CPU_BYTES = 2 ** 20;

/** The output head for generated rows: two sizes, and two numbers of rows where there are several. */
export async function measureHead(
  device: Device,
  { config, type, kvType, batched }: ProbeSubject,
): Promise<LinearMeasure> {
  const { headRow } = modelSizes(config, type, kvType);
  const most = Math.floor((device.adapter.software ? CPU_BYTES : GPU_BYTES) / headRow);
  const rows = Math.max(1, Math.min(config.vocabSize, most));
  const samples: LinearSample[] = [];
  const runs: [outFeatures: number, batch: number][] = [
    [rows, 1],
    [Math.ceil(rows / 2), 1],
  ];
  if (batched) runs.push([rows, BATCH]);
  for (const [outFeatures, batch] of runs) {
    const spec = {
      name: 'probe head',
      inFeatures: config.hiddenSize,
      parts: [{ tensor: '', tensorRows: outFeatures, firstRow: 0, rows: outFeatures }],
    };
    const { program, matrix } = await device.checked('preparing to measure', () => {
      const allocated = allocateMatrix(device, spec, type);
      return { program: recordHead(device, allocated, batch, config.norm), matrix: allocated };
    });
    const seconds = await timeProgram({ device, program, step: { rows: [batch], chunks: 1 } });
    const read = outFeatures * headRow;
    samples.push({ read, multiplied: read * batch, seconds });
    for (const { weight, scale } of matrix.shards) {
      weight.dispose();
      scale?.dispose();
    }
  }
  const { secondsPerByte, secondsPerByteRow } = fitLinear(samples);
  return { secondsPerByte, secondsPerByteRow };
}

function recordHead(device: Device, matrix: Matrix, rows: number, norm: NormConfig): Program {
  const stride = activationStride(matrix.inFeatures);
  const outStride = activationStride(matrix.outFeatures);
  const buffer = (name: string): Buffer => device.createBuffer(`probe head ${name}`, rows * stride * 4);
  const [x, weight, normed] = [buffer('x'), buffer('norm'), buffer('normed')];
  const recorder = new Recorder(device, 'probe head');
  recordLinear(recorder, { role: 'generated', rows, normed }, matrix, {
    x,
    xStride: stride,
    norm: { config: norm, weight, bias: norm.bias ? weight : undefined },
    out: device.createBuffer('probe head out', rows * outStride * 4),
    outStride,
  });
  return recorder.finish();
}
