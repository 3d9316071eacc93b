import type { AdapterEntry } from '../../src/app/shared/adapter_list.js';

/** In words: which GPUs a browser offers, and what ranks on them are. */
export function describeChoice(entries: readonly AdapterEntry[]): string {
  const different = entries.filter(({ same_as: same }) => same === undefined);
  const [first, second] = different;
  if (!first) return 'This browser offers no WebGPU adapter.';
  if (second) {
    return (
      `Two GPUs: ${first.name} (${first.request}) and ${second.name} (${second.request}); ` +
      `ranks=${first.request},${second.request} puts a rank on each.`
    );
  }
  const which =
    entries.length > 1 ? `${entries.map(({ request }) => request).join(' and ')} are the same GPU` : 'There is one GPU';
  return `${which} (${first.name}): ranks are several devices on it.`;
}
