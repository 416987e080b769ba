{{- range $name, $model := .Values.models }}
{{- $labels := dict "app.kubernetes.io/part-of" $.Release.Name "app.kubernetes.io/name" (printf "%s-%s" $.Release.Name $name) }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $.Release.Name }}-{{ $name }}
  labels: {{- toYaml $labels | nindent 4 }}
spec: # no `replicas`: they are the autoscaler's
  selector:
    matchLabels: {app.kubernetes.io/name: {{ $.Release.Name }}-{{ $name }}}
  strategy: # a new pod may find no free GPU before an old one goes
    rollingUpdate: {maxSurge: 0, maxUnavailable: 1}
  template:
    metadata:
      labels: {{- toYaml $labels | nindent 8 }}
      annotations: {checksum/scripts: {{ print ($.Files.Glob "files/*").AsConfig $.Values.cuda | sha256sum }}}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      # The sleep of preStop, the longest answer of a full queue, and 10 s to end.
      terminationGracePeriodSeconds: {{ add $.Values.preStopSeconds 10 (div (mul $model.milliseconds (add1 $model.queue)) 1000) }}
      {{- with $.Values.runtimeClassName }}
      runtimeClassName: {{ . }}
      {{- end }}
      nodeSelector: {{- toYaml $.Values.nodeSelector | nindent 8 }}
      tolerations: {{- toYaml $.Values.tolerations | nindent 8 }}
      securityContext: {runAsNonRoot: true, runAsUser: 65534, runAsGroup: 65534, seccompProfile: {type: RuntimeDefault}}
      volumes:
        - {name: scripts, configMap: {name: {{ $.Release.Name }}-scripts}}
      containers:
        - name: model
          image: {{ $.Values.image }}
          command: {{- toYaml $.Values.command | nindent 12 }}
          args:
            - {{ $name }}
            - --milliseconds={{ $model.milliseconds }}
            - --queue={{ $model.queue }}
            - --port={{ $.Values.port }}
          ports:
            - {name: http, containerPort: {{ $.Values.port }}}
          # SIGTERM comes once no proxy sends requests to the pod.
          lifecycle: {preStop: {sleep: {seconds: {{ $.Values.preStopSeconds }}}}}
          # An HPA counts a pod from the moment it is ready: not before its GPU has run a kernel.
          readinessProbe:
            httpGet: {path: /healthz, port: http}
            periodSeconds: 1
          volumeMounts:
            - {name: scripts, mountPath: /scripts, readOnly: true}
          resources: {{- toYaml $.Values.resources | nindent 12 }}
          securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ $.Release.Name }}-{{ $name }}
  labels: {{- toYaml $labels | nindent 4 }}
spec:
  type: {{ $.Values.service.type }}
  selector: {app.kubernetes.io/name: {{ $.Release.Name }}-{{ $name }}}
  ports:
    - {name: http, port: 80, targetPort: http}
{{- end }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-scripts
  labels: {app.kubernetes.io/part-of: {{ .Release.Name }}}
data: {{- (.Files.Glob "files/*").AsConfig | nindent 2 }}
  cuda.py: {{ .Values.cuda | toJson }}
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ .Release.Name }}
  labels: {{- merge (dict "app.kubernetes.io/part-of" .Release.Name) .Values.monitor.labels | toYaml | nindent 4 }}
spec:
  selector:
    matchLabels: {app.kubernetes.io/part-of: {{ .Release.Name }}}
  podMetricsEndpoints:
    - {port: http, path: /metrics, interval: {{ .Values.monitor.interval }}, scrapeTimeout: {{ .Values.monitor.interval }}}
{{- if .Values.ingress.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {{ .Release.Name }}
  labels: {app.kubernetes.io/part-of: {{ .Release.Name }}}
  annotations: {{- toYaml .Values.ingress.annotations | nindent 4 }}
spec:
  {{- with .Values.ingress.className }}
  ingressClassName: {{ . }}
  {{- end }}
  rules:
    - {{ with .Values.ingress.host }}host: {{ . }}
      {{ end }}http:
        paths:
          {{- range $name, $_ := .Values.models }}
          - path: /v2/models/{{ $name }}
            pathType: Prefix
            backend: {service: {name: {{ $.Release.Name }}-{{ $name }}, port: {name: http}}}
          {{- end }}
{{- end }}
