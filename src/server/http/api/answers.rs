//! Problems that several endpoints answer with, for the description of the API.

use std::collections::BTreeMap;

use utoipa::IntoResponses;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};

/// Declares answers: status and description.
macro_rules! answers {
    ($($name:ident: $status:literal, $description:literal;)+) => {
        $(
            #[doc = $description]
            pub struct $name;

            impl IntoResponses for $name {
                fn responses() -> BTreeMap<String, RefOr<Response>> {
                    BTreeMap::from([($status.to_owned(), problem($description))])
                }
            }
        )+
    };
}

answers! {
    NoTask: "404", "There is no such task.";
    NotPending: "409", "The task is running, or has finished.";
    NotDead: "409", "The task is not dead.";
    ClaimLost: "409", "The claim was lost.";
    OtherArming: "412", "The task has another arming than `If-Match` names.";
    TooManyChanges: "429", "Too many changes of many tasks go on.";
    AnyProblem: "default", "Any problem.";
    AnyOther: "default", "Any other problem.";
}

fn problem(description: &str) -> RefOr<Response> {
    let schema = Ref::from_schema_name("Problem");
    let content = ContentBuilder::new().schema(Some(schema)).build();
    ResponseBuilder::new()
        .description(description)
        .content("application/problem+json", content)
        .build()
        .into()
}
