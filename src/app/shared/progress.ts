import { formatBytes } from '../../base/math.js';
import type { LoadProgress } from '../../index.js';

export function progressLine(progress: LoadProgress): string {
  const { phase, loadedBytes, totalBytes, tensorsLoaded, tensorsTotal, kernelsCompiled, kernelsTotal } = progress;
  if (phase === 'download') return `downloading: ${formatBytes(loadedBytes)} of ${formatBytes(totalBytes)}`;
  if (phase === 'kernels') return `compiling kernels: ${kernelsCompiled} of ${kernelsTotal}`;
  if (phase !== 'weights') return phase === 'ready' ? 'ready' : `loading ${phase}`;
  return `loading weights: ${formatBytes(loadedBytes)} of ${formatBytes(totalBytes)}, ${tensorsLoaded} of ${tensorsTotal} tensors`;
}
