import { useState } from 'react';
import { SplitkvChat } from 'splitkv/react';

export default function Assistant({ model = 'smollm2-360m-instruct' }) {
  const [answers, setAnswers] = useState([]);
  return (
    <>
      <SplitkvChat
        model={model}
        maxTokens={200}
        onAnswer={({ detail }) => setAnswers((earlier) => [...earlier, detail.text])}
      />
      <p>
        <output>{answers.length}</output> answers so far
      </p>
    </>
  );
}
