/** A replica with a stand-in for a model, as a process of its own that can be killed: `ReplicaProcess`. */
import { Replica } from '../replicas/replica.js';
import { standInModel, type StandInOptions } from './stand_in_model.js';

export interface ReplicaArguments extends StandInOptions {
  readonly servers: string;
  readonly replica: string;
}

const given = JSON.parse(process.argv[2]!) as ReplicaArguments;
const joined = await Replica.join({
  cluster: { servers: given.servers },
  name: given.replica,
  model: standInModel(given),
  server: {},
});
process.on('SIGTERM', () => {
  joined.drain();
  setTimeout(() => void joined.close(10_000).then(() => process.exit(0)), 500);
});
console.log('ready');
