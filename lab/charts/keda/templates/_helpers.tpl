{{- define "keda.crd-labels" -}}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: {{ .Values.operator.name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "keda.labels" -}}
{{ include "keda.crd-labels" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "keda.image" -}}
{{ .image.registry }}/{{ .image.repository }}:{{ .image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "keda.security" -}}
runAsUser: 1000
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "keda.connections" -}}
- {name: KEDA_HTTP_DEFAULT_TIMEOUT, value: {{ .Values.http.timeout | quote }}}
- {name: KEDA_HTTP_MIN_TLS_VERSION, value: {{ .Values.http.minTlsVersion }}}
- {name: KEDA_HTTP_TLS_CIPHER_LIST, value: {{ .Values.http.tlsCipherList | quote }}}
- {name: KEDA_SERVICE_MIN_TLS_VERSION, value: {{ .Values.service.minTlsVersion }}}
- {name: KEDA_SERVICE_TLS_CIPHER_LIST, value: {{ .Values.service.tlsCipherList | quote }}}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}
