/**
 * What ranks of other machines measure for their coordinator, in their worker. A file of Node's, as the library starts no such ranks in
 * pages: the site's page that does has a build of its own, with this file.
 */
import { createPortCommunicator } from '../../distributed/index.js';
import type { AdapterRequest, Device } from '../../gpu/index.js';
import type { AdapterMeasure, LinkMeasure } from '../../placement/index.js';
import { measureSide } from './measure_group.js';
import { measureMachine } from './measure_machine.js';
import type { ProbeSubject } from './probe.js';

/** The rank's adapter; what was measured before is remembered on its machine. @throws as `measureMachine` */
export async function measureRank(adapter: AdapterRequest, subject: ProbeSubject): Promise<AdapterMeasure> {
  const { ranks } = await measureMachine({ subject, adapters: [adapter], virtual: false });
  return ranks[0]!;
}

/** An exchange with a peer, whose rank is asked the same. @throws SplitkvError `peer_lost` */
export async function measureExchanges(
  device: Device,
  rank: number,
  ports: ReadonlyMap<number, MessagePort>,
): Promise<LinkMeasure> {
  const communicator = createPortCommunicator({ rank, worldSize: 2, device, ports });
  try {
    return await measureSide(communicator);
  } finally {
    communicator.dispose();
  }
}
