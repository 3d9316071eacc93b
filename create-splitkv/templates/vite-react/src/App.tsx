import { useState } from 'react';
import { SplitkvChat } from 'splitkv/react';

export function App() {
  const [answers, setAnswers] = useState(0);
  return (
    <main>
      <h1>Chat</h1>
      <SplitkvChat model="__MODEL__" keep="chat" settings onAnswer={() => setAnswers((count) => count + 1)} />
      <p>{answers === 0 ? 'Ask something.' : `${answers} ${answers === 1 ? 'answer' : 'answers'} so far.`}</p>
    </main>
  );
}
