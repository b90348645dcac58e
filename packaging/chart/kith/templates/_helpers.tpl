{{- define "kith.name" -}}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{- end }}
{{- define "kith.nodes" -}}{{ include "kith.name" . }}-nodes{{- end }}
{{- define "kith.uninstall" -}}{{ include "kith.name" . }}-uninstall{{- end }}
{{- define "kith.secret" -}}{{ .Values.identity.existingSecret | default (printf "%s-identity" (include "kith.name" .)) }}{{- end }}
{{/* Names of objects without a namespace, which another release may not have. */}}
{{- define "kith.cluster" -}}{{ .Release.Namespace }}:{{ include "kith.name" . }}{{- end }}
{{- define "kith.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}
{{- define "kith.selector" -}}
app.kubernetes.io/name: kith
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "kith.labels" -}}
{{ include "kith.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}
{{/* What a container on the network of its node may: make a device, routes and nftables tables there, and no more. A capability needs root. */}}
{{/* They also ask whether others are there, kithd gateways of peers by ICMP echo, and nodes that of the gateway: for both Linux has raw sockets. */}}
{{- define "kith.netraw" -}}
{{ include "kith.root" . }}
capabilities: {drop: [ALL], add: [NET_ADMIN, NET_RAW]}
{{- end }}
{{- define "kith.root" -}}
runAsUser: 0
runAsGroup: 0
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
{{- end }}
{{/* Names of what kithd puts into the cluster: TestTheChartNamesWhatKithdInstalls compares them with what it does. */}}
{{- define "kith.definitions" -}}
- advertisements.kith.dev
- contracts.kith.dev
- namespaceoffloadings.kith.dev
- offloadedpods.kith.dev
- peeringpolicies.kith.dev
- peeringrequests.kith.dev
- peers.kith.dev
- reflectionpolicies.kith.dev
- sharingpolicies.kith.dev
- tetherpolicies.kith.dev
{{- end }}
{{- define "kith.mutating" -}}
- daemonsets.offloading.kith.dev
- home.offloading.kith.dev
- offloading.kith.dev
- volumes.offloading.kith.dev
{{- end }}
{{- define "kith.validating" -}}
- budgets.offloading.kith.dev
- namespaces.kith.dev
- offloading.kith.dev
- peers.kith.dev
- selectors.kith.dev
- tenants-addresses.kith.dev
- tenants-budgets.kith.dev
- tenants-configmaps.kith.dev
- tenants-disruptions.kith.dev
- tenants-objects.kith.dev
- tenants-pods.kith.dev
- tenants-secrets.kith.dev
- tenants-services.kith.dev
- tenants-sizes.kith.dev
- tenants-slices.kith.dev
- volumes.offloading.kith.dev
{{- end }}
