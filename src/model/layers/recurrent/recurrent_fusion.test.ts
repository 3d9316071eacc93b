import { expect, test } from 'vitest';
import type { Device, DeviceTraits } from '../../../gpu/index.js';
import { BASELINE_TRAITS } from '../../../gpu/testing/test_kernel.js';
import type { Matrix } from '../../weights/matrix.js';
import type { Residual } from '../residual.js';
import { fusesConv } from './recurrent_fusion.js';

test('a projection that is multiplied in bytes elsewhere is not fused with one that multiplies exactly', () => {
  const limits = { ...BASELINE_TRAITS.limits, maxStorageBuffersPerShaderStage: 10 };
  const fuses = (type: Matrix['type'], paths?: NonNullable<DeviceTraits['fast']>['paths']): boolean => {
    const traits = { ...BASELINE_TRAITS, limits, ...(paths && { fast: { paths, subgroup: 32 } }) };
    const device = { traits, traitsOf: () => traits } as unknown as Device;
    const matrix = { name: 'in', type, outFeatures: 192, inFeatures: 64, shards: [{}] } as unknown as Matrix;
    return fusesConv(
      device,
      { kind: 'rms' } as never,
      matrix,
      { role: 'generated', rows: 1, residual: {} as Residual },
      64,
    );
  };
  expect(fuses('q8')).toBe(true);
  expect(fuses('q8', ['f16'])).toBe(true);
  expect(fuses('q8', ['dot4'])).toBe(false);
  expect(fuses('f16', ['dot4'])).toBe(true);
});
