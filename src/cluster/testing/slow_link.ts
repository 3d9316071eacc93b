import { createServer, connect as connectTcp, type AddressInfo, type Socket } from 'node:net';

/** A way to a server of this machine on which everything takes so long, in each direction. `url` is as the server's. */
export async function slowLink(url: string, ms: number): Promise<{ readonly url: string; close(): Promise<void> }> {
  const { port } = new URL(url);
  const sockets = new Set<Socket>();
  const pipe = (from: Socket, to: Socket): void => {
    sockets.add(from);
    // Timers of one length end in the order in which they began.
    from.on('data', (bytes) => setTimeout(() => void to.write(bytes), ms));
    from.on('error', () => to.destroy());
    from.on('close', () => to.destroy());
  };
  const server = createServer({ noDelay: true }, (near) => {
    const far = connectTcp({ port: Number(port), host: '127.0.0.1', noDelay: true });
    pipe(near, far);
    pipe(far, near);
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  return {
    url: `nats://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((done) => server.close(done));
    },
  };
}
