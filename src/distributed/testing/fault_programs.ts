import { SplitkvError } from '../../base/errors.js';
import { broadcast, receive, send } from './collectives.js';
import { type Outcome, outcome, part, RESOLVED, type TestRank } from './test_rank.js';

const turn = (ms = 20): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** How a rank's exchange ended, and the next one. */
type Ends = Promise<readonly [Outcome, Outcome]>;

/** `culprit` gives up while the others wait for it. */
export async function aborts(rank: TestRank, { culprit }: { culprit: number }): Ends {
  const { comm, rank: me } = rank;
  const reason = new SplitkvError('context_full', 'the reason');
  const region = part(rank.buffer('never', 4), 0, 4);
  const wait = (): Promise<Outcome> =>
    outcome(rank.exchange(receive('wait', me === culprit ? (me + 1) % rank.worldSize : culprit, region)));
  const first = wait();
  if (me === culprit) {
    await turn();
    comm.abort(reason);
    comm.abort(new SplitkvError('internal', 'a second reason'));
  }
  return [await first, await wait()];
}

/** `culprit`'s device goes in the middle of an exchange in which it sends to all others. */
export async function losesDevice(rank: TestRank, { culprit }: { culprit: number }): Ends {
  const { comm, rank: me } = rank;
  const region = part(rank.buffer('payload', 2 ** 18), 0, 2 ** 18);
  // Nobody sends this: where devices are shared, a GPU copy could be over before the loss shows.
  const never = receive('never', (me + 1) % rank.worldSize, region);
  const exchange = broadcast(comm, 'broadcast', culprit, region);
  const first = outcome(rank.exchange({ ...exchange, receives: [...exchange.receives, ...never.receives] }));
  if (me === culprit) comm.device.gpu.destroy();
  const end = await first;
  return [end, await outcome(rank.exchange(never))];
}

/** Rank 0 disposes its communicator; what it sent before still arrives. */
export async function leaves(rank: TestRank): Ends {
  const { comm, rank: me, ranks } = rank;
  const region = part(rank.buffer('payload', 4), 0, 4);
  if (me === 0) {
    const first = await outcome(rank.exchange(broadcast(comm, 'broadcast', 0, region)));
    comm.dispose();
    return [first, await outcome(rank.exchange(receive('after the end', 1, region)))];
  }
  await turn(50);
  const first = await outcome(rank.exchange(receive('broadcast', 0, region)));
  // Rank 1 finds out, and not before all others have their message: it then aborts for them too.
  const others = ranks.slice(2);
  if (me > 1) await rank.exchange(send('done', 1, region));
  else await rank.exchange({ label: 'done', sends: [], receives: others.map((peer) => ({ peer, regions: [region] })) });
  return [first, await outcome(rank.exchange(receive('wait', me === 1 ? 0 : 1, region)))];
}

/** `culprit`'s worker ends while the others wait for it. */
export async function vanishes(rank: TestRank, { culprit }: { culprit: number }): Ends {
  const region = part(rank.buffer('payload', 4), 0, 4);
  if (rank.rank === culprit) {
    await turn(50);
    process.exit();
  }
  const first = await outcome(rank.exchange(receive('wait', culprit, region)));
  return [first, await outcome(rank.exchange(receive('wait', culprit, region)))];
}

/** Rank 0 sends 8 bytes where rank 1 expects 12, the sender first or the receiver first. */
export async function disagree(rank: TestRank, { first }: { first: 'sender' | 'receiver' }): Ends {
  const { rank: me } = rank;
  const buffer = rank.buffer('payload', 8);
  if ((me === 0) !== (first === 'sender')) await turn();
  const exchange = me === 0 ? send('uneven', 1, part(buffer, 0, 2)) : receive('uneven', 0, part(buffer, 0, 3));
  const end = me < 2 ? await outcome(rank.exchange(exchange)) : RESOLVED;
  return [end, await outcome(rank.exchange(receive('next', (me + 1) % rank.worldSize, part(buffer, 0, 1))))];
}

/** All but rank 0 wait for it until the time limit; rank 0 comes later. */
export async function comesLate(rank: TestRank, { ms }: { ms: number }): Ends {
  const { rank: me } = rank;
  const region = part(rank.buffer('payload', 4), 0, 4);
  if (me === 0) await turn(ms);
  const wait = (): Promise<Outcome> => outcome(rank.exchange(receive('exchange 7', me === 0 ? 1 : 0, region)));
  return [await wait(), await wait()];
}

/** Rank 0 asks for what can't be; the others wait for it. */
export async function misuses(rank: TestRank, { how }: { how: 'peer' | 'region' | 'own' | 'twice' }): Ends {
  const { rank: me, worldSize } = rank;
  const buffer = rank.buffer('payload', 4);
  const wait = (): Promise<Outcome> =>
    outcome(rank.exchange(receive('wait', (me + worldSize - 1) % worldSize, part(buffer, 0, 4))));
  if (me !== 0) return [await wait(), await wait()];
  const wrong = {
    peer: send('wrong', worldSize, part(buffer, 0, 4)),
    region: send('wrong', 1, { buffer, offset: 8, size: 12 }),
    own: send('wrong', 0, part(buffer, 0, 4)),
    twice: send('wrong', 1, part(buffer, 0, 4)),
  }[how];
  const before = how === 'twice' ? wait() : undefined;
  const end = await outcome(rank.exchange(wrong));
  return [end, await (before ?? wait())];
}
