import { type Device, openDevice } from '../../gpu/index.js';
import { createGroup } from '../create_group.js';
import { runProgram, type TestGroup, type TestLinks } from './programs.js';

/** Ranks in this process: `adapters[i]` of rank i is 'name' or 'name#key'; ranks with the same text share a device. */
export function groupLinks(adapters: readonly string[]): TestLinks {
  const devices = new Map<string, Device>();
  const deviceOf = async (text: string): Promise<Device> => {
    let device = devices.get(text);
    if (!device || device.isLost) devices.set(text, (device = await openDevice({ adapterName: text.split('#')[0]! })));
    return device;
  };
  return {
    worldSize: adapters.length,
    workers: false,
    async open(options): Promise<TestGroup> {
      const ranks: Device[] = [];
      for (const text of adapters) ranks.push(await deviceOf(text));
      const held = (): number => [...devices.values()].reduce((total, device) => total + device.usage.buffers, 0);
      const before = held();
      const comms = createGroup(ranks, options);
      return {
        run: (name, args) => Promise.all(comms.map((comm) => runProgram(comm, name, args))),
        close: async () => {
          for (const comm of comms) comm.dispose();
          return { leaked: held() - before };
        },
      };
    },
    end: async () => {
      for (const device of devices.values()) device.dispose();
    },
  };
}
