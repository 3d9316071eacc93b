import * as z from 'zod/mini';
import { formatError } from '../../base/errors.js';
import type { Cluster } from '../../cluster/connect.js';
import { isLinkAddress, NatsLink, newLink } from '../../cluster/links/nats_link.js';
import type { LinkAddress } from '../../engine/workers/worker_protocol.js';
import { messagesField, messagesOf } from '../requests/chat_request.js';
import type { ResponseStore } from '../responses/response_store.js';
import { heardBeats } from './beats.js';
import { type Beat, decode, encode, INSTANCE, MAX_KEEPS, PROTOCOL } from './messages.js';

/** Replicas that an heir is looked for among, and what one may take to answer. */
const MOST_ASKED = 4;
const ASK_MS = 1000;
/** What handing over may take in all: links of replicas that die end before. */
const HANDOVER_MS = 10_000;

const object = z.record(z.string(), z.unknown());
const kept = z.object({
  client: z.string().check(z.regex(/^[\w-]{1,64}$/)),
  body: z.looseObject({ id: z.string().check(z.regex(/^resp_[\w-]{1,100}$/)) }),
  items: z.array(object),
  messages: messagesField,
});
const instances = z.array(z.string().check(z.regex(INSTANCE))).check(z.maxLength(MAX_KEEPS));
const told = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('response'), kept }),
  z.object({ kind: z.literal('end'), keeps: instances }),
]);
const request = z.object({
  from: z.string().check(z.regex(INSTANCE)),
  model: z.string(),
  link: z.custom<LinkAddress>(isLinkAddress),
});

/** What of a replica takes part in a handover. */
export interface Keeper {
  readonly cluster: Cluster;
  readonly instance: string;
  readonly model: string;
  readonly responses: ResponseStore;
  /** Whose responses it has, beside its own. */
  readonly keeps: readonly string[];
}

/**
 * Gives the responses that a replica keeps to another one of its model, before it leaves. Resolves with that one's name; undefined where
 * there is none, or it didn't take them: then they are gone with this one.
 */
export async function handOver(keeper: Keeper): Promise<string | undefined> {
  if (keeper.responses.size === 0) return undefined;
  for (const heir of (await heirs(keeper)).slice(0, MOST_ASKED)) {
    if (await give(keeper, heir)) return heir.name;
  }
  return undefined;
}

/** Replicas of the model that stay, those with least to do first. */
async function heirs({ cluster, instance, model }: Keeper): Promise<readonly Beat[]> {
  const takes = (beat: Beat): boolean =>
    beat.protocol === PROTOCOL &&
    beat.instance !== instance &&
    beat.model === model &&
    beat.status === 'ok' &&
    !beat.draining &&
    !beat.left;
  const load = ({ running, waiting, slots }: Beat): number => (running + waiting) / slots;
  return (await heardBeats(cluster)).filter(takes).toSorted((a, b) => load(a) - load(b));
}

/** Whether another replica has all of it now. */
async function give({ cluster, instance, model, responses, keeps }: Keeper, heir: Beat): Promise<boolean> {
  const [near, far] = newLink();
  const asked = { from: instance, model, link: far };
  try {
    const subject = cluster.subject('replica', heir.instance, 'heir', instance);
    const answer = await cluster.connection.request(subject, encode(asked), { timeout: ASK_MS });
    if (answer.string() !== 'yes') return false;
  } catch {
    return false;
  }
  return new Promise((resolve) => {
    const settle = (done: boolean): void => {
      clearTimeout(timer);
      resolve(done);
      link.close();
    };
    const link = new NatsLink(cluster, near, {
      message: (value) => settle(value === 'kept'),
      ended: () => settle(false),
    });
    const timer = setTimeout(() => settle(false), HANDOVER_MS);
    // What JSON has of it: no more goes over the wire.
    for (const each of responses.all())
      link.post({ kind: 'response', kept: JSON.parse(JSON.stringify(each)) as unknown });
    link.post({ kind: 'end', keeps: [instance, ...keeps].slice(0, MAX_KEEPS) });
  });
}

/** Takes another replica's responses, where it may. @param took told whose, in the end @throws SplitkvError `format` */
export function takeOver(
  { cluster, model, responses }: Pick<Keeper, 'cluster' | 'model' | 'responses'>,
  data: Uint8Array,
  took: (keeps: readonly string[]) => void,
): 'yes' | 'no' {
  const { head } = decode("a handover's request", request, data);
  if (head.model !== model) return 'no';
  const link = new NatsLink(cluster, head.link, {
    message: (value) => {
      const message = told.safeParse(value);
      if (!message.success) throw formatError('a response of another replica that is none');
      if (message.data.kind === 'response') {
        const { client, messages, ...response } = message.data.kept;
        return responses.add(client, { ...response, messages: messagesOf(messages, []) });
      }
      took(message.data.keeps);
      link.post('kept');
      link.close();
    },
    ended: () => {},
  });
  return 'yes';
}
