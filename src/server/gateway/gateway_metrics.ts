import { counter, gauge, type Sample } from '../prometheus.js';
import type { Beat } from '../replicas/messages.js';
import type { RelayEvent } from './relay.js';
import { type Member, type ReplicaSet, takes } from './replica_set.js';

const HELP: Readonly<Record<RelayEvent, string>> = {
  moved: 'Requests that were asked of another replica again.',
  resumed: 'Streams that went on with another replica.',
  differed: 'Streams that another replica could not go on with: it said something else.',
  restarted: 'Streams that began again with another replica.',
};

/** What a gateway tells Prometheus of its replicas. */
export class GatewayMetrics {
  readonly #events: Record<RelayEvent, number> = { moved: 0, resumed: 0, differed: 0, restarted: 0 };

  count(event: RelayEvent): void {
    this.#events[event]++;
  }

  /** @param others gateways beside this one */
  texts(replicas: ReplicaSet, others: number): string[] {
    const { members } = replicas;
    const by = (value: (member: Member) => number): Sample[] =>
      members.map((member): Sample => [{ replica: member.beat.name, model: member.beat.model }, value(member)]);
    const told = (name: string, help: string, value: (beat: Beat) => number): string =>
      gauge(
        `splitkv_replica_${name}`,
        help,
        by(({ beat }) => value(beat)),
      );
    const total = (name: string, help: string, value: (member: Member) => number): string =>
      counter(`splitkv_replica_${name}_total`, help, by(value));
    return [
      gauge('splitkv_gateways', 'Gateways of the cluster, this one included.', others + 1),
      gauge('splitkv_replicas', 'Replicas that are there.', members.length),
      gauge('splitkv_replicas_ready', 'Of those, such as take requests.', replicas.ready.length),
      told('running', 'Answers being generated.', ({ running }) => running),
      told('waiting', 'Answers that wait for a slot or for KV blocks.', ({ waiting }) => waiting),
      told('slots', 'Answers that may be generated side by side.', ({ slots }) => slots),
      told('places', 'Answers that may run and wait.', ({ room }) => room),
      told('draining', '1 while it ends what it has and takes nothing new.', ({ draining }) => Number(draining)),
      gauge(
        'splitkv_replica_ready',
        '1 while it takes requests.',
        by((member) => Number(takes(member))),
      ),
      told('lag_seconds', 'For how long it has computed without a word.', ({ lag }) => lag / 1000),
      total('prompt_tokens', 'Prompt tokens of accepted requests.', ({ beat }) => beat.promptTokens),
      total('cached_prompt_tokens', 'Prompt tokens that the prefix cache held.', ({ beat }) => beat.cachedTokens),
      total('generated_tokens', 'Tokens generated.', ({ beat }) => beat.generatedTokens),
      total('requests', 'Requests that this gateway sent there.', ({ asked }) => asked),
      ...Object.entries(this.#events).map(([event, count]) =>
        counter(`splitkv_gateway_${event}_total`, HELP[event as RelayEvent], count),
      ),
    ];
  }
}
