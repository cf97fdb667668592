{{/* Names, labels and the parts that several manifests share. */}}
{{- define "aenv.name" -}}
{{- default (ternary .Release.Name (printf "%s-aenv" .Release.Name) (contains "aenv" .Release.Name)) .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "aenv.instances" -}}
{{- default .Release.Namespace .Values.instances.namespace -}}
{{- end }}

{{- define "aenv.account" -}}
{{- default (ternary (include "aenv.name" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end }}

{{/* Call with a dict of root and component. */}}
{{- define "aenv.selector" -}}
app.kubernetes.io/name: aenv
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "aenv.labels" -}}
{{ include "aenv.selector" . }}
app.kubernetes.io/part-of: aenv
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "aenv.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end }}

{{- define "aenv.adminSecret" -}}
{{- default (printf "%s-admin" (include "aenv.name" .)) .Values.admin.existingSecret -}}
{{- end }}

{{- define "aenv.redisSecret" -}}
{{- default (printf "%s-redis" (include "aenv.name" .)) .Values.redis.existingSecret -}}
{{- end }}

{{/* Whether several processes share records and bundles: more than one gateway, or a hub beside it. */}}
{{- define "aenv.several" -}}
{{- if or (gt (int .Values.gateway.replicas) 1) .Values.gateway.autoscaling.enabled }}true{{ end -}}
{{- end }}

{{- define "aenv.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "aenv.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* How gateway and hub find the store. The password stays in its Secret: Kubernetes puts it into the url. */}}
{{- define "aenv.storeEnv" -}}
{{- $redis := .Values.redis -}}
{{- if ne $redis.mode "none" }}
{{- $host := printf "%s-redis" (include "aenv.name" .) }}
{{- $at := printf "%s:6379" (default $host $redis.bundled.clusterIP) }}
{{- $scheme := "redis" }}
{{- $user := "" }}
{{- if eq $redis.mode "external" }}
{{- $at = printf "%s:%d/%d" $redis.external.host (int $redis.external.port) (int $redis.external.database) }}
{{- $scheme = ternary "rediss" "redis" $redis.external.tls }}
{{- $user = $redis.external.username }}
{{- end }}
{{- if or (eq $redis.mode "bundled") $redis.existingSecret }}
- name: REDIS_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ include "aenv.redisSecret" . }}, key: {{ $redis.key }}}
- name: AENV_STORE
  value: {{ printf "%s://%s:$(REDIS_PASSWORD)@%s" $scheme $user $at | quote }}
{{- else }}
- name: AENV_STORE
  value: {{ printf "%s://%s" $scheme $at | quote }}
{{- end }}
{{- end }}
{{- if .Values.bundles.url }}
- name: AENV_BLOBS
  value: {{ .Values.bundles.url | quote }}
{{- else if .Values.bundles.claim }}
- name: AENV_BLOBS
  value: /var/lib/aenv-bundles
{{- end }}
- name: AENV_HOME
  value: /var/lib/aenv
{{- end }}

{{- define "aenv.mounts" -}}
- {name: home, mountPath: /var/lib/aenv}
- {name: temporary, mountPath: /tmp}
{{- if and .Values.bundles.claim (not .Values.bundles.url) }}
- {name: bundles, mountPath: /var/lib/aenv-bundles}
{{- end }}
{{- end }}

{{- define "aenv.volumes" -}}
- name: temporary
  emptyDir: {}
{{- if and .Values.bundles.claim (not .Values.bundles.url) }}
- name: bundles
  persistentVolumeClaim: {claimName: {{ .Values.bundles.claim }}}
{{- end }}
- name: admin
  secret:
    secretName: {{ include "aenv.adminSecret" . }}
    defaultMode: 0440
    items: [{key: {{ .Values.admin.key }}, path: token}]
{{- end }}

{{/* Makes the administrator's account before a server starts: without an account it refuses to listen. */}}
{{- define "aenv.adminContainer" -}}
- name: admin
  image: {{ include "aenv.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [aenv, token, create, --role=admin, {{ printf "--user=%s" .Values.admin.user | quote }}, --token-file=/run/aenv/admin/token, --wait=2m]
  env:
    {{- include "aenv.storeEnv" . | nindent 4 }}
  securityContext:
    {{- include "aenv.security" . | nindent 4 }}
  resources:
    requests: {cpu: 50m, memory: 128Mi}
    limits: {memory: 512Mi}
  volumeMounts:
    {{- include "aenv.mounts" . | nindent 4 }}
    - {name: admin, mountPath: /run/aenv/admin, readOnly: true}
{{- end }}

{{/* A claim. Call with a dict of root, component, name and persistence. */}}
{{- define "aenv.claim" -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ .name }}
  labels:
    {{- include "aenv.labels" . | nindent 4 }}
  {{- if .persistence.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
spec:
  accessModes: [{{ default "ReadWriteOnce" .persistence.accessMode }}]
  {{- with .persistence.storageClass }}
  storageClassName: {{ . | quote }}
  {{- end }}
  resources:
    requests:
      storage: {{ .persistence.size }}
{{- end }}

{{/* A password or token that stays the same over upgrades. Call with a dict of root, secret, key and fresh. */}}
{{- define "aenv.kept" -}}
{{- $known := lookup "v1" "Secret" .root.Release.Namespace .secret | default dict -}}
{{- dig "data" .key (b64enc .fresh) $known -}}
{{- end }}
