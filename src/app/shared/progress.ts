import { formatBytes } from '../../base/math.js';
import type { LoadProgress } from '../../index.js';

export function progressLine({ phase, loadedBytes, totalBytes, tensorsLoaded, tensorsTotal }: LoadProgress): string {
  if (phase === 'download') return `downloading: ${formatBytes(loadedBytes)} of ${formatBytes(totalBytes)}`;
  if (phase !== 'weights') return phase === 'ready' ? 'ready' : `loading ${phase}`;
  return `loading weights: ${formatBytes(loadedBytes)} of ${formatBytes(totalBytes)}, ${tensorsLoaded} of ${tensorsTotal} tensors`;
}
