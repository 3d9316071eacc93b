import { expect, test } from 'vitest';
import { LiveProgress } from './load.js';

const kernels = { kernelsCompiled: 0, kernelsTotal: 0 };

test('counts bytes as they arrive, never back and never beyond what there is', () => {
  const seen: number[] = [];
  let now = 0;
  const progress = new LiveProgress(
    ({ loadedBytes }) => seen.push(loadedBytes),
    () => (now += 200),
  );
  progress.arrived(50); // the first files
  progress.arrived(-50);
  progress.arrived(20);
  progress.arrived(-20);
  expect(seen.splice(0)).toEqual([50, 70]);
  progress.begin(1000, 2);
  progress.arrived(100);
  progress.arrived(300);
  progress.arrived(-400); // fetched, and not used yet
  progress.used({
    phase: 'weights',
    loadedBytes: 250,
    totalBytes: 1000,
    tensorsLoaded: 1,
    tensorsTotal: 2,
    ...kernels,
  });
  progress.arrived(500);
  progress.arrived(500);
  progress.arrived(-1000);
  progress.used({
    phase: 'weights',
    loadedBytes: 1000,
    totalBytes: 1000,
    tensorsLoaded: 2,
    tensorsTotal: 2,
    ...kernels,
  });
  expect(seen).toEqual([100, 400, 400, 750, 1000, 1000]);
});

test('tells ten times per second at most what arrives', () => {
  let count = 0;
  let now = 0;
  const progress = new LiveProgress(
    () => count++,
    () => now,
  );
  progress.begin(1e6, 1);
  for (now = 0; now < 1000; now++) progress.arrived(1);
  expect(count).toBe(10);
});
