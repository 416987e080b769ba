{{- define "dcgm-exporter.fullname" -}}
{{ contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "dcgm-exporter.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: dcgm-exporter
{{- end }}

{{- define "dcgm-exporter.metadata" -}}
namespace: {{ .Release.Namespace }}
{{ include "dcgm-exporter.labels" . }}
{{- end }}

{{- define "dcgm-exporter.readsPods" -}}
{{ and .Values.kubernetes.enablePodUID .Values.kubernetes.rbac.create }}
{{- end }}

{{- define "dcgm-exporter.labels" -}}
labels:
  {{- include "dcgm-exporter.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
