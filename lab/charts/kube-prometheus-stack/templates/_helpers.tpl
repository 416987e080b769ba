{{- define "stack.fullname" -}}
{{ contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) | trunc 26 | trimSuffix "-" }}
{{- end }}

{{- define "stack.labels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.Version | quote }}
app.kubernetes.io/part-of: {{ .Chart.Name }}
chart: {{ .Chart.Name }}-{{ .Chart.Version }}
release: {{ .Release.Name | quote }}
heritage: {{ .Release.Service }}
{{- end }}

{{- define "stack.operator.labels" -}}
{{ include "stack.labels" . }}
app: {{ .Chart.Name }}-operator
app.kubernetes.io/name: {{ .Chart.Name }}-prometheus-operator
app.kubernetes.io/component: prometheus-operator
{{- end }}

{{- define "stack.image" -}}
{{ .image.registry }}/{{ .image.repository }}:{{ .image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* What the objects of a release select: the release's own, or everything when the NilUsesHelmValues flag is off. */}}
{{- define "stack.selector" -}}
{{- if .own }}{matchLabels: {release: {{ .Release.Name | quote }}}}{{ else }}{}{{ end }}
{{- end }}

{{- define "stack.tls" -}}
bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
{{- if .https }}
scheme: https
tlsConfig: {caFile: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt, insecureSkipVerify: {{ .insecure }}}
{{- end }}
{{- end }}
