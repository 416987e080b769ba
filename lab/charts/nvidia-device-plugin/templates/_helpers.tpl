{{- define "nvidia-device-plugin.fullname" -}}
{{ contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "nvidia-device-plugin.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "nvidia-device-plugin.labels" -}}
{{ include "nvidia-device-plugin.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "nvidia-device-plugin.image" -}}
image: {{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "v%s" .Chart.AppVersion) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "nvidia-device-plugin.placement" -}}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
priorityClassName: {{ .Values.priorityClassName }}
nodeSelector: {{- toYaml .Values.nodeSelector | nindent 2 }}
affinity: {{- toYaml .Values.affinity | nindent 2 }}
tolerations: {{- toYaml .Values.tolerations | nindent 2 }}
{{- end }}

{{- /* One environment variable for each value that is given; null leaves the program's default. */}}
{{- define "nvidia-device-plugin.env" -}}
{{- range $name, $value := . }}
{{- if not (kindIs "invalid" $value) }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
{{- end }}
