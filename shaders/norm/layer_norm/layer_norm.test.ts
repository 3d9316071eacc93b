import { testKernel } from '../../../src/gpu/testing/test_kernel.js';
import { testNormRows } from '../fixture.js';
import { suite } from './cases.js';

await testKernel(suite);
await testNormRows(suite, { rows: 4, width: 1001, stride: 1024, eps: 1e-6, residual: false, bias: true });
