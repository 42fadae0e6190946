{{/* A pod's name ends in its number and a StatefulSet's revision label in a hash: 52 characters leave room for both. */}}
{{- define "chairlift.name" -}}
{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "chairlift.selector" -}}
app.kubernetes.io/name: chairlift
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Other names than those of servers, whose services must not find nodes. */}}
{{- define "chairlift.nodeSelector" -}}
app.kubernetes.io/name: chairlift-node
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "chairlift.nodeLabels" -}}
{{ include "chairlift.nodeSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "chairlift.labels" -}}
{{ include "chairlift.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* Longer than the hook and the drain together, or streams are cut off without a word. */}}
{{- define "chairlift.graceSeconds" -}}
{{ add .Values.drain.delaySeconds .Values.drain.finishSeconds 20 }}
{{- end }}
