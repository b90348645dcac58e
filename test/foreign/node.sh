#!/usr/bin/env bash
# What systemd is to a node of a cluster that nobody of Kith wrote: it keeps containerd and the kubelet running and, when they have what they
# need, flannel and kube-proxy. kubeadm does the rest. Images and containers survive it.
# usage: node.sh BIN PROGRAMS   BIN: of containerd, runc and the CNI plugins; PROGRAMS: build/foreign
set -u
bin=$1 programs=$2
export PATH=$programs:$bin:$PATH
mkdir -p /etc/containerd /etc/cni/net.d /var/log/foreign /run/containerd /opt/cni

cat > /etc/containerd/config.toml <<EOF
version = 3
root = '/var/lib/containerd'
state = '/run/containerd'
[grpc]
  address = '/run/containerd/containerd.sock'
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = 'kith.dev/pause:1'
[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  restrict_oom_score_adj = true # nobody here may lower it
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['$bin/cni']
    conf_dir = '/etc/cni/net.d'
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    runtime_path = '$bin/containerd-shim-runc-v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = '$bin/runc'
      SystemdCgroup = false
EOF

# keep NAME COMMAND...: runs it, and again when it ends
keep() {
  local name=$1
  shift
  while :; do
    "$@" >> "/var/log/foreign/$name.log" 2>&1
    sleep 1
  done
}

# with FILE... -- COMMAND...: runs it once the files are there
with() {
  while [ "$1" != -- ]; do
    while [ ! -e "$1" ]; do sleep 0.3; done
    shift
  done
  shift
  "$@"
}

# As kubeadm's unit for systemd has it.
kubelet_as_kubeadm_says() {
  local KUBELET_KUBEADM_ARGS=''
  . /var/lib/kubelet/kubeadm-flags.env
  # shellcheck disable=SC2086 # arguments
  exec kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS
}

# What flannel's CNI plugin would hand on to others.
plugins() {
  local FLANNEL_NETWORK FLANNEL_SUBNET FLANNEL_MTU FLANNEL_IPMASQ
  . /run/flannel/subnet.env
  local mask=true
  [ "$FLANNEL_IPMASQ" != true ] || mask=false
  cat > /etc/cni/net.d/.new <<EOF
{"cniVersion": "1.0.0", "name": "cbr0", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "hairpinMode": true, "mtu": $FLANNEL_MTU, "ipMasq": $mask,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "${FLANNEL_SUBNET/.1\//.0\/}"}]], "routes": [{"dst": "$FLANNEL_NETWORK"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
EOF
  mv /etc/cni/net.d/.new /etc/cni/net.d/10-flannel.conflist
}

trap 'trap - TERM; kill 0; wait' TERM INT
keep containerd containerd --config /etc/containerd/config.toml &
with /var/lib/kubelet/kubeadm-flags.env /var/lib/kubelet/config.yaml -- keep kubelet kubelet_as_kubeadm_says &
with /etc/kubernetes/flannel.conf -- keep flanneld env NODE_NAME="$(hostname)" flanneld --kube-subnet-mgr --kubeconfig-file /etc/kubernetes/flannel.conf --net-config-path /etc/kubernetes/net-conf.json --ip-masq --iface eth0 &
with /run/flannel/subnet.env -- plugins &
with /etc/kubernetes/kube-proxy.yaml -- keep kube-proxy kube-proxy --config /etc/kubernetes/kube-proxy.yaml --hostname-override "$(hostname)" &
wait
