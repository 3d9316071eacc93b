'use client';

import { useState } from 'react';
import { SplitkvChat } from 'splitkv/react';

export function Chat() {
  const [last, setLast] = useState('');
  return (
    <>
      <SplitkvChat model="__MODEL__" keep="chat" settings onAnswer={({ detail }) => setLast(detail.text)} />
      {last && <p>The last answer has {last.length} characters.</p>}
    </>
  );
}
