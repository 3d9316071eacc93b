import { didYouMean } from '../../base/errors.js';
import { defined } from '../../base/options.js';
import { LOAD_ROWS } from '../../engine/contracts/options/load_rows.js';
import { helpText, isSwitch, readOption } from '../../engine/contracts/options/row.js';
import { SAMPLING_ROWS } from '../../engine/contracts/options/sampling_rows.js';
import { checkSampling } from '../../engine/ranks/sampling/sampling.js';
import type { GenerateOptions, LoadOptions, SamplingOptions } from '../../index.js';
import { differentGpus, listBrowserAdapters } from '../shared/adapter_list.js';
import { type Attribute, ATTRIBUTE_ROWS, CHAT_ROWS, ELEMENT_ROWS } from './chat_rows.js';

/** Every attribute of the element, with what it says. The element reads no others. */
export const ATTRIBUTES = Object.fromEntries(
  Object.entries(ATTRIBUTE_ROWS).map(([own, [, row]]) => [own, helpText(row, ELEMENT_ROWS, 'attribute')]),
) as Readonly<Record<Attribute, string>>;

export interface ChatSettings {
  readonly load: LoadOptions;
  readonly sampling: SamplingOptions & { readonly maxTokens: number };
  readonly chat: Pick<GenerateOptions, 'enableThinking'>;
  readonly autostart: boolean;
  readonly selfTest: boolean;
  readonly system: string | undefined;
  readonly about: string | undefined;
}

/** Of CHAT_ROWS. */
interface OwnValues extends Partial<Record<'thinking' | 'system' | 'about', string>> {
  readonly maxTokens: number;
  readonly autostart?: boolean;
  readonly selfTest?: boolean;
}

/** @throws SplitkvError `usage` for a value that can't be read, with its attribute; the library judges the rest. */
export function readSettings(attribute: (name: Attribute) => string | null): ChatSettings {
  const values: Record<string, unknown> = { maxTokens: CHAT_ROWS.maxTokens.default };
  for (const [own, [name, row]] of Object.entries(ATTRIBUTE_ROWS)) {
    const text = attribute(own as Attribute);
    // Whoever gives a cluster as an object gives the property.
    if (text === null || own === 'cluster' || (own === 'ranks' && text === 'auto')) continue;
    values[name] = isSwitch(row) ? !row.isOn : readOption(row, text, `${own}="${text}"`);
  }
  const those = (names: object): object =>
    defined(Object.fromEntries(Object.keys(names).map((name) => [name, values[name]])));
  const sampling: SamplingOptions = those(SAMPLING_ROWS);
  checkSampling({ ...sampling, seed: sampling.seed ?? 0 });
  // Whoever gives an object gives it as a property.
  const servers = attribute('cluster')
    ?.split(',')
    .map((server) => server.trim());
  const cluster = servers && { servers, ...defined({ name: values['clusterName'] as string | undefined }) };
  const { thinking, maxTokens, autostart, selfTest, system, about } = values as unknown as OwnValues;
  return {
    load: { ...those(LOAD_ROWS), ...(cluster && { cluster }) },
    sampling: { ...sampling, maxTokens },
    chat: thinking === undefined ? {} : { enableThinking: thinking === 'on' },
    autostart: autostart ?? false,
    selfTest: selfTest ?? true,
    system,
    about,
  };
}

/** The ranks of `ranks="auto"`: one on each different GPU. @throws SplitkvError `no_webgpu` */
export async function everyAdapter(): Promise<number | readonly string[]> {
  const different = differentGpus(await listBrowserAdapters());
  return different.length > 1 ? different.map(({ request }) => request) : 1;
}

/** Attributes that look like one of the element's own, but aren't: a slip, which would otherwise be silent. */
export function misspelt(names: readonly string[]): string[] {
  const known = Object.keys(ATTRIBUTES);
  const foreign = names.filter(
    (name) => !known.includes(name) && !/^(data-|aria-|on)/.test(name) && !GLOBAL.includes(name),
  );
  return foreign.flatMap((name) => {
    const hint = didYouMean(name, known);
    return hint === '' ? [] : [`<splitkv-chat> has no attribute '${name}'.${hint}`];
  });
}

const GLOBAL = ['class', 'id', 'style', 'slot', 'part', 'title', 'lang', 'dir', 'hidden', 'role', 'tabindex', 'is'];
