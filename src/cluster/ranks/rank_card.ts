import { isObject } from '../../base/json.js';
import * as z from 'zod/mini';
import type { AdapterDescription } from '../../gpu/index.js';
import { formatError, ioError, messageOf, tried } from '../../base/errors.js';
import { decode, encode } from 'cborg/extended';
import { type Cluster, isName } from '../connect.js';

/** What a rank of the cluster says of itself when the roll is called. */
export interface RankCard {
  readonly name: string;
  /** Of this start of it: another process of the same name has another. */
  readonly id: string;
  readonly version: string;
  readonly adapter: AdapterDescription & { readonly name: string };
  /** Bytes of GPU memory that it gives; undefined: no limit. */
  readonly memory?: number;
  readonly busy: boolean;
}

/** What ranks with equal bits have in common: the adapter and, as far as the adapter says it, its driver. */
export const adapterKind = ({ adapter }: RankCard): string =>
  [adapter.name, adapter.vendor, adapter.architecture, adapter.device, adapter.description]
    .filter((text, at, all) => text !== '' && all.indexOf(text) === at)
    .join(', ');

const shortText = z.string().check(z.maxLength(1000));
const name = z.string().check(z.refine(isName));
const cardForm = z.looseObject({
  name,
  id: name,
  version: shortText,
  adapter: z.looseObject({
    name: shortText,
    vendor: shortText,
    architecture: shortText,
    device: shortText,
    description: shortText,
    software: z.boolean(),
    variants: z.enum(['hardware', 'software']),
  }),
  memory: z.optional(z.int().check(z.positive())),
  busy: z.boolean(),
});

/** @throws SplitkvError `format` */
export function readCard(data: Uint8Array): RankCard {
  const card = readObject(data);
  if (!cardForm.safeParse(card).success) throw formatError("a rank's card that is none");
  return card as unknown as RankCard;
}

/** A message of one object. @throws SplitkvError `format` */
export function readObject(data: Uint8Array): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = decode(new Uint8Array(data));
  } catch (error) {
    throw formatError(`a message that can't be read: ${messageOf(error)}`, error);
  }
  if (!isObject(value)) throw formatError('a message that is no object');
  return value;
}

/** Ranks answer at once; what takes longer is as good as away. */
const ROLL_MS = 1000;
/** After the last answer. */
const QUIET_MS = 250;

/**
 * Asks who is there. Messages that are no cards are passed over: others may come by the same subject.
 * @param enough ends the wait @throws SplitkvError `io` when the server is away
 */
export async function callRoll(
  { connection, subject }: Cluster,
  enough: (cards: readonly RankCard[]) => boolean = () => false,
): Promise<RankCard[]> {
  const cards = new Map<string, RankCard>();
  try {
    const answers = await connection.requestMany(subject('roll'), encode({}), {
      strategy: 'stall',
      maxWait: ROLL_MS,
      stall: QUIET_MS,
    });
    for await (const { data } of answers) {
      const card = tried(() => readCard(data));
      if (card) cards.set(card.id, card);
      if (enough([...cards.values()])) break;
    }
  } catch (error) {
    const { name } = error as Error;
    // That nobody listens is an answer, too.
    if (!/NoResponders|RequestError|TimeoutError/.test(name)) {
      throw ioError(`the cluster's server is away: ${(error as Error).message}`, error);
    }
  }
  return [...cards.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1));
}
