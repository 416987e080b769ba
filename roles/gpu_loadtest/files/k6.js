// Sends requests at the rates of plan.json, whatever time each answer takes, and counts what came of them.
import http from 'k6/http';
import grpc from 'k6/net/grpc';
import { Counter } from 'k6/metrics';

const plan = JSON.parse(open('./plan.json'));
const called = plan.url.match(/^(grpcs?):\/\/(.*)$/);
const client = called ? new grpc.Client() : null;
const outcomes = { served: new Counter('served'), rejected: new Counter('rejected'), failed: new Counter('failed') };

// A server that has enough says so by one of these; it is no failure.
const TOO_MUCH = [429, 503];

export const options = {
  scenarios: { load: plan.scenario },
  discardResponseBodies: true,
  // Pods that come later get their share only of connections that are made later.
  noConnectionReuse: true,
};

export function setup() {
  console.log('kubegpu-loadtest begins');
}

export default function () {
  outcomes[called ? call() : request()].add(1);
}

function request() {
  const params = { headers: plan.headers, timeout: `${plan.timeout_s}s` };
  const { status } = http.request(plan.method, plan.url, plan.body || null, params);
  if (status >= 200 && status < 400) return 'served';
  return TOO_MUCH.includes(status) ? 'rejected' : 'failed';
}

function call() {
  try {
    client.connect(called[2], { reflect: true, plaintext: called[1] === 'grpc', timeout: `${plan.timeout_s}s` });
    const { status } = client.invoke(plan.grpc_method, JSON.parse(plan.body || '{}'), { timeout: `${plan.timeout_s}s` });
    if (status === grpc.StatusOK) return 'served';
    return status === grpc.StatusResourceExhausted ? 'rejected' : 'failed';
  } catch (error) {
    return 'failed';
  } finally {
    client.close();
  }
}

export function handleSummary({ metrics }) {
  const count = (name) => (metrics[name] ? metrics[name].values.count : 0);
  const figures = { served: count('served'), rejected: count('rejected'), failed: count('failed'), dropped: count('dropped_iterations') };
  return { stdout: `kubegpu-loadtest figures ${JSON.stringify(figures)}\n` };
}
