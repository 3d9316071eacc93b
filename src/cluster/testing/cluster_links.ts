import type { Cluster } from '../connect.js';
import type { Port } from '../../distributed/ports/port.js';
import { bridgePort, newLink } from '../links/nats_link.js';

/** As `createPorts`, of which each pair talks over NATS: `clusters[rank]` is the rank's own connection. */
export function clusterPorts(clusters: readonly Cluster[]): Map<number, MessagePort>[] {
  const near = clusters.map(() => new Map<number, MessagePort>());
  for (const [a, cluster] of clusters.entries()) {
    for (let b = a + 1; b < clusters.length; b++) {
      const ends = newLink();
      for (const [rank, peer, at, end] of [
        [a, b, cluster, ends[0]],
        [b, a, clusters[b]!, ends[1]],
      ] as const) {
        const { port1, port2 } = new MessageChannel();
        near[rank]!.set(peer, port1);
        bridgePort(at, end, port2 as unknown as Port);
      }
    }
  }
  return near;
}
