{{/* What pods of servers and of nodes have in common. */}}
{{- define "chairlift.podSettings" -}}
automountServiceAccountToken: false
# A service named chairlift would set CHAIRLIFT_PORT to an address, and the server reads its options there too.
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: { type: RuntimeDefault }
{{- end }}

{{/* Of the pods that compute. */}}
{{- define "chairlift.placement" -}}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "chairlift.resources" -}}
{{- $resources := deepCopy .Values.resources }}
{{- if .Values.gpus }}
{{- $limits := merge (dict "nvidia.com/gpu" .Values.gpus) (default dict $resources.limits) }}
{{- $_ := set $resources "limits" $limits }}
{{- end }}
{{- toYaml $resources }}
{{- end }}

{{- define "chairlift.image" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "chairlift.environment" -}}
- { name: HF_HOME, value: /cache }
{{- with .Values.model.hubToken }}
{{- if .secret }}
- name: HF_TOKEN
  valueFrom:
    secretKeyRef: { name: {{ .secret | quote }}, key: {{ .key | quote }} }
{{- end }}
{{- end }}
{{- with .Values.nodes }}
{{- if .count }}
# In the environment, which other users cannot read, and not in a file that its group could.
- name: CHAIRLIFT_CLUSTER_KEY
  valueFrom:
    secretKeyRef: { name: {{ required "nodes.keySecret is needed: a secret with the cluster key" .keySecret | quote }}, key: {{ .key | quote }} }
{{- end }}
{{- end }}
{{- with .Values.env }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{- define "chairlift.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{- define "chairlift.mounts" -}}
- { name: config, mountPath: /etc/chairlift/config, readOnly: true }
- { name: tmp, mountPath: /tmp }
- { name: home, mountPath: /home/chairlift }
- { name: shm, mountPath: /dev/shm }
- { name: cache, mountPath: /cache }
{{- if .Values.model.existingClaim }}
- { name: models, mountPath: /models, readOnly: true }
{{- end }}
{{- end }}

{{- define "chairlift.volumes" -}}
- name: config
  configMap: { name: {{ include "chairlift.name" . }} }
- name: tmp
  emptyDir: { sizeLimit: {{ .Values.scratchSize | quote }} }
- name: home
  emptyDir: { sizeLimit: {{ .Values.scratchSize | quote }} }
- name: shm
  emptyDir: { medium: Memory, sizeLimit: {{ .Values.shmSize | quote }} }
{{- if not .Values.model.cache.size }}
- name: cache
  emptyDir: { sizeLimit: {{ .Values.model.cache.limit | quote }} }
{{- end }}
{{- with .Values.model.existingClaim }}
- name: models
  persistentVolumeClaim: { claimName: {{ . | quote }}, readOnly: true }
{{- end }}
{{- end }}

{{- define "chairlift.cacheClaims" -}}
{{- with .Values.model.cache }}
{{- if .size }}
volumeClaimTemplates:
  - metadata:
      name: cache
    spec:
      accessModes: [ReadWriteOnce]
      {{- with .storageClassName }}
      storageClassName: {{ . | quote }}
      {{- end }}
      resources:
        requests: { storage: {{ .size | quote }} }
{{- end }}
{{- end }}
{{- end }}

{{/* Over machines where possible; called with the labels of the pods. */}}
{{- define "chairlift.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- . | nindent 8 }}
{{- end }}
