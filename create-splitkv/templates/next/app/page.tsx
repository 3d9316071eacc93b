import { Chat } from './chat';

export default function Home() {
  return (
    <main>
      <h1>Chat</h1>
      <Chat />
    </main>
  );
}
