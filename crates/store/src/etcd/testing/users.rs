//! Users of a test's etcd, created through its API.

use crate::etcd::EtcdOptions;
use crate::etcd::cluster::{Cluster, unary, with_metadata};

/// A user with access to the keys below a prefix; without a prefix, to all keys (`root`).
#[derive(Clone, Copy, Debug)]
pub struct User<'u> {
    pub name: &'u str,
    pub password: &'u str,
    pub prefix: Option<&'u str>,
}

/// Creates the users and enables authentication. One of them must be `root`.
pub async fn enable_users(options: &EtcdOptions, users: &[User<'_>]) {
    let cluster = Cluster::new(options).expect("usable options");
    for user in users {
        let name = user.name.to_owned();
        call(
            &cluster,
            "/etcdserverpb.Auth/UserAdd",
            UserAdd { name: name.clone(), password: user.password.to_owned() },
        )
        .await;
        call(&cluster, "/etcdserverpb.Auth/RoleAdd", RoleAdd { name: name.clone() }).await;
        if let Some(prefix) = user.prefix {
            let mut range_end = prefix.as_bytes().to_vec();
            *range_end.last_mut().expect("a prefix") += 1;
            let permission = Permission { kind: READ_WRITE, key: prefix.as_bytes().to_vec(), range_end };
            let grant = RoleGrantPermission { name: name.clone(), permission: Some(permission) };
            call(&cluster, "/etcdserverpb.Auth/RoleGrantPermission", grant).await;
        }
        call(&cluster, "/etcdserverpb.Auth/UserGrantRole", UserGrantRole { user: name.clone(), role: name }).await;
    }
    call(&cluster, "/etcdserverpb.Auth/AuthEnable", Empty {}).await;
}

async fn call<Q: prost::Message + Send + Sync + 'static>(cluster: &Cluster, path: &'static str, request: Q) {
    let channel = cluster.connection(0).await.expect("etcd answers").channel;
    let answer = unary::<_, Empty>(cluster.url(0), channel, path, with_metadata(request, None)).await;
    answer.unwrap_or_else(|fault| panic!("{path}: {fault}"));
}

const READ_WRITE: i32 = 2;

#[derive(Clone, PartialEq, prost::Message)]
struct UserAdd {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    password: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RoleAdd {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct UserGrantRole {
    #[prost(string, tag = "1")]
    user: String,
    #[prost(string, tag = "2")]
    role: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RoleGrantPermission {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    permission: Option<Permission>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Permission {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    range_end: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Empty {}
