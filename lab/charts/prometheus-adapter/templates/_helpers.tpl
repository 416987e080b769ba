{{- define "prometheus-adapter.fullname" -}}
{{ contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "prometheus-adapter.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "prometheus-adapter.labels" -}}
{{ include "prometheus-adapter.selector" . }}
app.kubernetes.io/component: metrics
app.kubernetes.io/part-of: {{ .Chart.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "prometheus-adapter.config" -}}
rules: {{- toYaml .Values.rules.custom | nindent 2 }}
{{- with .Values.rules.external }}
externalRules: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
