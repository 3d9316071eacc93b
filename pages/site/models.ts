import { formatBytes } from '../../src/base/math.js';
import { models } from '../../src/index.js';
import { EMBEDDED_MODEL } from '../../models/example.js';
import { siteModel } from '../shared/site_models.js';

/** A model that the site offers to try. */
export interface OfferedModel {
  /** What the element's `model` says. */
  readonly model: string;
  readonly name: string;
  readonly about: string;
}

/** What examples name: of the offered ones, small enough to try, and it chats. */
export const USUAL_MODEL = 'smollm2-360m-instruct';

/** Of the catalog: downloads below 400 MB. */
const OFFERED = ['smollm2-135m-instruct', USUAL_MODEL, 'qwen3-0.6b'];

/** What whoever published the site put in, models of the catalog, the smallest first, and the example. */
export async function offeredModels(): Promise<readonly OfferedModel[]> {
  const catalog = (await models()).filter(({ name }) => OFFERED.includes(name));
  const own = siteModel();
  return [
    ...(own
      ? [
          {
            ...own,
            about: `${formatBytes(own.bytes)} from this site. It is a small model: it converses, and may be wrong.`,
          },
        ]
      : []),
    ...catalog.map(({ name, downloadBytes, license }) => ({
      model: name,
      name,
      about: `${formatBytes(downloadBytes)} from the Hugging Face Hub, licence ${license}, once you say so.`,
    })),
    {
      model: EMBEDDED_MODEL,
      name: 'The example',
      about: 'Trained for this site: 4 MiB, it knows some 270 words and answers questions about short stories.',
    },
  ];
}

/** The model that an address names, where the site offers it: anybody may have made the link. */
export const askedModel = (name: string | null): string =>
  name !== null && [EMBEDDED_MODEL, ...OFFERED].includes(name) ? name : USUAL_MODEL;
