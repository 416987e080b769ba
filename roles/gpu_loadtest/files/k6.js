// Sends requests at the rates of plan.json, whatever time each answer takes, and counts what came of them in each stage.
import exec from 'k6/execution';
import http from 'k6/http';
import grpc from 'k6/net/grpc';
import { Counter, Trend } from 'k6/metrics';

const plan = JSON.parse(open('./plan.json'));
const called = plan.url.match(/^(grpcs?):\/\/(.*)$/);
const client = called ? new grpc.Client() : null;

const OUTCOMES = ['served', 'rejected', 'refused_in_stream', 'failed'];
const STATISTICS = { p50: 'med', p95: 'p(95)', p99: 'p(99)' };
// A server that has enough says so by one of these; it is no failure. 529 is Dynamo's.
const TOO_MUCH = [429, 503, 529];

// Metrics of their own for each stage: the summary does not tell requests apart by the time at which they were sent.
const stages = plan.stages.map(({ ends_s }, number) => ({
  ends_s,
  counters: Object.fromEntries(OUTCOMES.map((outcome) => [outcome, new Counter(`${outcome}_${number}`)])),
  latency: new Trend(`latency_${number}`, true),
  ttft: new Trend(`ttft_${number}`, true),
}));

export const options = {
  scenarios: plan.scenarios,
  discardResponseBodies: true,
  // Pods that come later get their share only of connections that are made later.
  noConnectionReuse: true,
  summaryTrendStats: Object.values(STATISTICS),
  // It never fails. It makes k6 count those of the load apart from those of the probes.
  thresholds: { 'dropped_iterations{scenario:load}': ['count>=0'] },
};

export function setup() {
  console.log('kubegpu-loadtest begins');
}

export default function () {
  const stage = now();
  const [outcome, took_ms] = called ? call() : request();
  stage.counters[outcome].add(1);
  if (outcome === 'served') stage.latency.add(took_ms);
}

// The answer of one token takes as long as the first token of a stream, which k6 cannot read while it arrives.
export function probe() {
  const stage = now();
  const { status, timings } = send(plan.probe);
  if (status === 200) stage.ttft.add(timings.duration);
}

function now() {
  const passed_s = (Date.now() - exec.scenario.startTime) / 1000;
  return stages.find(({ ends_s }) => passed_s < ends_s) || stages[stages.length - 1];
}

function send(body, more) {
  return http.request(plan.method, plan.url, body || null, { headers: plan.headers, timeout: `${plan.timeout_s}s`, ...more });
}

function request() {
  const { status, timings, body } = send(plan.body, plan.probe ? { responseType: 'text' } : {});
  const took_ms = timings.duration;
  if (status >= 200 && status < 400) return [plan.probe ? outcomeOfStream(body) : 'served', took_ms];
  return [TOO_MUCH.includes(status) ? 'rejected' : 'failed', took_ms];
}

// A server that streams may reject a request after it has sent the status 200: data: {"error": {"code": 503, ...}}
function outcomeOfStream(body) {
  if (!body || !body.includes('"error"')) return 'served';
  for (const [, text] of body.matchAll(/^data: ?(\{.*\})\r?$/gm)) {
    const { error } = JSON.parse(text);
    if (error) return TOO_MUCH.includes(Number(error.code)) ? 'refused_in_stream' : 'failed';
  }
  return 'served';
}

function call() {
  const began_ms = Date.now();
  return [outcomeOfCall(), Date.now() - began_ms];
}

function outcomeOfCall() {
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
  const values = (name) => (metrics[name] || {}).values || {};
  const count = (name) => values(name).count || 0;
  const times = (name) =>
    metrics[name] && Object.fromEntries(Object.entries(STATISTICS).map(([key, statistic]) => [key, values(name)[statistic]]));
  const ofStages = stages.map((_stage, number) => ({
    ...Object.fromEntries(OUTCOMES.map((outcome) => [outcome, count(`${outcome}_${number}`)])),
    latency_ms: times(`latency_${number}`) || null,
    ttft_ms: times(`ttft_${number}`) || null,
  }));
  const sum = (outcome) => ofStages.reduce((total, stage) => total + stage[outcome], 0);
  const figures = {
    ...Object.fromEntries(OUTCOMES.map((outcome) => [outcome, sum(outcome)])),
    dropped: count('dropped_iterations{scenario:load}'),
    stages: ofStages,
  };
  return { stdout: `kubegpu-loadtest figures ${JSON.stringify(figures)}\n` };
}
