import { connect, type Socket } from 'node:net';

/** A TCP connection that says what it is told and keeps what it hears: for what no client would send. */
export class RawConnection {
  received = '';
  closed = false;
  readonly #socket: Socket;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setEncoding('utf8');
    socket.on('data', (text: string) => (this.received += text));
    socket.on('error', () => {});
    socket.on('close', () => (this.closed = true));
  }

  /** @param localAddress one of this machine's, to come from */
  static async open(url: string, localAddress?: string): Promise<RawConnection> {
    const { hostname, port } = new URL(url);
    const socket = connect({ port: Number(port), host: hostname, ...(localAddress && { localAddress }) });
    await new Promise<void>((done, failed) => {
      socket.once('connect', done);
      socket.once('error', failed);
    });
    return new RawConnection(socket);
  }

  send(data: string | Uint8Array): void {
    this.#socket.write(data);
  }

  get(path: string): void {
    this.send(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
  }

  /** A whole POST of JSON. */
  post(path: string, body: object, headers = ''): void {
    const text = JSON.stringify(body);
    this.send(
      `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n${headers}` +
        `Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
    );
  }

  /** Reads no more: what comes fills the buffers in between. */
  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  /** Gone without a word. */
  vanish(): void {
    this.#socket.resetAndDestroy();
  }
}
